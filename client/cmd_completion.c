// completion: a script for a shell. All of them ask this program (`trainctl completion words`) what
// can be at the cursor (complete.h). So one place knows it, and the script of an old installation
// offers the verbs of a new one. What they are for each shell is known to that shell: bash takes
// texts alone, zsh and fish show what each means.
//
// Rejected: lists of words within the scripts, which would be printed for each shell in its own
// language, and know no jobs.

#include <string.h>

#include "client/complete.h"
#include "client/screen/print.h"

static const char bash[] =
    "# trainctl: completion for bash. `source <(trainctl completion bash)`, or a file of\n"
    "# /usr/share/bash-completion/completions.\n"
    "_trainctl() {\n"
    "    local IFS=$'\\n'\n"
    "    COMPREPLY=($(\"${COMP_WORDS[0]}\" completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
    "2>/dev/null | cut -f1))\n"
    "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
    "}\n"
    "complete -o default -F _trainctl trainctl\n";

static const char zsh[] =
    "#compdef trainctl\n"
    "# trainctl: completion for zsh. A file _trainctl in a directory of fpath.\n"
    "_trainctl() {\n"
    "    local -a found more\n"
    "    local line\n"
    "    for line in \"${(@f)$(\"${words[1]}\" completion words -- \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\"; do\n"
    "        [[ -n $line ]] && found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
    "    done\n"
    "    [[ ${found[1]} == *=:* ]] && more=(-S '')\n"
    "    if (( $#found )); then _describe -V trainctl found \"${more[@]}\"; else _files; fi\n"
    "}\n"
    "if [[ ${funcstack[1]} == _trainctl ]]; then _trainctl \"$@\"; else compdef _trainctl "
    "trainctl; fi\n";

static const char fish[] =
    "# trainctl: completion for fish. A file ~/.config/fish/completions/trainctl.fish.\n"
    "function __trainctl_words\n"
    "    set -l words (commandline -opc)\n"
    "    set -l found ($words[1] completion words -- $words[2..-1] (commandline -ct) 2>/dev/null)\n"
    "    if test (count $found) -gt 0\n"
    "        printf '%s\\n' $found\n"
    "    else\n"
    "        __fish_complete_path (commandline -ct)\n"
    "    end\n"
    "end\n"
    "complete -c trainctl -f -a '(__trainctl_words)'\n";

td_status td_cmd_completion(struct td_session *s, const struct td_flags *f, int *out_exit) {
    static const struct {
        const char *shell, *script;
    } rows[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    (void)out_exit;
    if (strcmp(f->args[0], "words") == 0) return td_complete(s, f->args + 1, f->n_args - 1);
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (strcmp(f->args[0], rows[i].shell) != 0 || f->n_args != 1) continue;
        fputs(rows[i].script, stdout);
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "completion is for bash, zsh or fish, not '%s'",
                   f->args[f->n_args > 1]);
}
