// The double of NVML as it was before the names with _v2: see nvml.c.
#define NVML_DOUBLE_OLD
#include "tests/doubles/nvml.c"
