#ifndef TRAIND_DAEMON_LAUNCHER_REPORTS_PYTHON_H
#define TRAIND_DAEMON_LAUNCHER_REPORTS_PYTHON_H

// Which Python a command will be run by, as far as names of files say. Nothing is started for it.
//
// A command is Python if its file, links followed, is named python3.N, or if the first line of the
// file names one. For a shell, or another program that runs a third one (`env`, `timeout` ...), it
// is python3 and python of PATH. Where these are of two versions the older one counts. All else is
// not known: a program that runs a Python inside of a container, for example.
//
// Asks the file system about a dozen times. Pure but for that; any thread.

#include "lib/base/base.h"

enum { TD_PYTHON_PATH = 4096 };

struct td_python {
    int minor;                 // 3.minor; 0: not known
    char file[TD_PYTHON_PATH]; // as it was found, links not followed
};

struct td_python_of {
    const char *program; // as in argv[0]
    const char *path;    // PATH of the command
    const char *workdir; // where it is started
};
void td_python_find(const struct td_python_of *of, struct td_python *out_python);
// Is a package there that this Python would find in its own folders? home: "": unknown.
bool td_python_has(const struct td_python *p, const char *package, const char *home);

#endif
