// As lib/rpc/descriptors.c has its bytes: the assembler places the files in read-only data, so that
// trainctl needs none beside it, and those that are tested are those that are written. Paths are
// from the top of the tree, where the Makefile runs the compiler.

#include "client/jobs/templates.h"

#define EMBED(symbol, file)                                                                        \
    __asm__(".section .rodata\n"                                                                   \
            ".hidden td_template_" #symbol "\n"                                                    \
            ".globl td_template_" #symbol "\n"                                                     \
            "td_template_" #symbol ":\n"                                                           \
            ".incbin \"examples/init/" file "\"\n"                                                 \
            ".hidden td_template_" #symbol "_end\n"                                                \
            ".globl td_template_" #symbol "_end\n"                                                 \
            "td_template_" #symbol "_end:\n"                                                       \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const char td_template_##symbol[], td_template_##symbol##_end[]

EMBED(readme, "README.md");
EMBED(job, "job.yaml");
EMBED(module, "mynet.c");
EMBED(dataset, "mydata.c");
EMBED(points, "points.csv");
EMBED(makefile, "Makefile");

static struct td_template template_of(const char *name, const char *text, const char *end) {
    const size_t bytes = (size_t)((uintptr_t)end - (uintptr_t)text);
    return (struct td_template){name, {text, bytes}};
}

void td_templates_get(struct td_template out_templates[TD_TEMPLATES]) {
    struct td_template *t = out_templates;
    *t++ = template_of("README.md", td_template_readme, td_template_readme_end);
    *t++ = template_of("job.yaml", td_template_job, td_template_job_end);
    *t++ = template_of("mynet.c", td_template_module, td_template_module_end);
    *t++ = template_of("mydata.c", td_template_dataset, td_template_dataset_end);
    *t++ = template_of("points.csv", td_template_points, td_template_points_end);
    *t++ = template_of("Makefile", td_template_makefile, td_template_makefile_end);
}
