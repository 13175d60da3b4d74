// Examples are rows of their own, by the name of a verb. A test asks for one of each, and that the
// whole fits a terminal of 80 columns and 40 rows. The manual page has the same text (docs/man.py).

#include "client/help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"

enum { TEXT_BYTES = 2048 };

struct example {
    const char *verb, *lines;
};

static const struct example examples[] = {
    {"cancel", "  trainctl cancel j-1f2e --reason 'wrong data'\n"
               "  trainctl cancel mnist --all           all jobs of that name\n"},
    {"checkpoint create", "  trainctl checkpoint create mnist\n"
                          "  trainctl checkpoint create mnist --wait -o name    a1/step-120\n"},
    {"checkpoint download", "  trainctl checkpoint download mnist                newest, into "
                            "step-N\n"
                            "  trainctl checkpoint download mnist best -O weights\n"
                            "  trainctl checkpoint download mnist a1/step-200\n"},
    {"checkpoint list", "  trainctl checkpoint list mnist\n"},
    {"clone", "  trainctl clone mnist --set optimizer.lr=0.01 --follow\n"},
    {"cluster info", "  trainctl cluster info\n  trainctl cluster info -o json\n"},
    {"compare", "  trainctl compare j-1f2e j-77aa j-9b03\n"
                "  trainctl compare mnist-a mnist-b val_loss --plot\n"},
    {"completion", "  source <(trainctl completion bash)                   this shell only\n"
                   "  trainctl completion zsh > ~/.zfunc/_trainctl         in fpath\n"
                   "  trainctl completion fish > ~/.config/fish/completions/trainctl.fish\n"},
    {"context add", "  trainctl context add lab --address host:7070 --ca ca.pem \\\n"
                    "      --token-file token\n"},
    {"context list", "  trainctl context list\n"},
    {"context use", "  trainctl context use lab\n  trainctl context use -             none\n"},
    {"delete", "  trainctl delete mnist\n  trainctl delete j-1f2e j-77aa --keep-checkpoints\n"},
    {"describe", "  trainctl describe mnist\n  trainctl describe j-1f2e -o json\n"},
    {"init", "  trainctl init mine\n"},
    {"list", "  trainctl list\n  trainctl list --state running,queued --owner alice\n"
             "  trainctl list --label team=vision -o wide\n"
             "  trainctl list -o name --limit 1     the newest\n"},
    {"logs", "  trainctl logs mnist --tail 20 -f\n  trainctl logs mnist --rank 0 --err-only\n"},
    {"metrics", "  trainctl metrics mnist\n  trainctl metrics mnist val_loss -f\n"
                "  trainctl metrics mnist --plot\n  trainctl metrics mnist -o csv > mnist.csv\n"},
    {"node cordon", "  trainctl node cordon gpu-3 --reason 'a fan is loud'\n"},
    {"node device disable",
     "  trainctl node device disable gpu-3 GPU-8932f937 --reason 'a fan is loud'\n"},
    {"node device enable", "  trainctl node device enable gpu-3 GPU-8932f937\n"},
    {"node drain", "  trainctl node drain gpu-3 --reason 'new disk'\n"
                   "  trainctl node drain gpu-3 --wait --timeout 600    until it is empty\n"},
    {"node label", "  trainctl node label gpu-3 gpu=h100 room=b2\n"
                   "  trainctl node label gpu-3 room-       takes it away\n"
                   "  trainctl node label gpu-3             shows them\n"},
    {"node list", "  trainctl node list\n  trainctl node list -o wide          each GPU, too\n"},
    {"node revoke", "  trainctl node revoke gpu-3\n"},
    {"node show", "  trainctl node show gpu-3\n  trainctl node show gpu-3 -o json\n"},
    {"node token", "  trainctl node token --name gpu-3 > join-token\n"},
    {"node uncordon", "  trainctl node uncordon gpu-3\n"},
    {"pause", "  trainctl pause mnist\n  trainctl pause mnist --wait\n"},
    {"plan", "  trainctl plan job.yaml --set trainer.devices=2\n"
             "  trainctl plan job.yaml -O plan.json\n"},
    {"plugins", "  trainctl plugins\n  trainctl plugins power_sgd\n"},
    {"resume", "  trainctl resume mnist\n"},
    {"retry", "  trainctl retry mnist --follow\n  trainctl retry mnist --resume\n"},
    {"run", "  trainctl run job.yaml\n  trainctl run job.yaml --resume\n"},
    {"spec", "  trainctl spec mnist > job.yaml        to submit again\n"
             "  trainctl spec mnist -o wide           every key, resolved\n"
             "  trainctl spec mnist -o json\n"},
    {"submit", "  trainctl submit job.yaml --follow\n"
               "  trainctl submit job.yaml --set optimizer.lr=0.01 --set trainer.devices=2\n"
               "  trainctl submit job.yaml --set init_from=mnist/best\n"
               "  trainctl submit job.yaml --dry-run    every key, nothing starts\n"},
    {"token create", "  trainctl token create --role submitter --name alice --expires 30d\n"},
    {"token list", "  trainctl token list\n"},
    {"token request", "  trainctl token request --key alice.key --name alice > alice.csr\n"},
    {"token revoke", "  trainctl token revoke t-4be1\n"},
    {"top", "  trainctl top\n  trainctl top --once\n"},
    {"version", "  trainctl version\n"},
    {"wait", "  trainctl wait mnist && echo done\n  trainctl wait j-1f2e --follow\n"
             "  trainctl wait mnist --for running\n"},
    {"watch", "  trainctl watch mnist -o jsonl\n"},
};

static const char *examples_of(const struct td_verb *v) {
    for (size_t i = 0; i < TD_COUNTOF(examples); i++) {
        if (strcmp(examples[i].verb, v->name) == 0) return examples[i].lines;
    }
    return "";
}

const char *td_help_of(const struct td_verb *v) {
    static char text[TEXT_BYTES];
    const char *lines = examples_of(v);
    (void)snprintf(text, sizeof text,
                   "%s\vFlags of every verb, such as --address, are in `trainctl --help`.\n%s%s",
                   v->summary, *lines ? "\nEXAMPLES\n" : "", lines);
    return text;
}

static bool names(const char *text, const char *flag) {
    char word[32];
    (void)snprintf(word, sizeof word, "--%s", flag);
    const size_t len = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += len) {
        if (!isalpha((unsigned char)at[len]) && at[len] != '-') return true;
    }
    return false;
}

bool td_help_names(const struct td_verb *v, const char *flag) {
    return names(v->summary, flag) || names(examples_of(v), flag);
}
