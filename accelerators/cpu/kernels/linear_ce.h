#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_LINEAR_CE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_LINEAR_CE_H

// linear_ce and linear_ce_grad: the last linear layer with its loss.

#include "accelerators/cpu/product.h"

// Takes them, if there are products of their types.
TD_MUST_USE td_status td_linear_ce_take(struct td_kernel *k, const struct td_product_site *site,
                                        td_node n);
// Would it be taken, and read its weight through a pack alone?
bool td_linear_ce_packs(const struct td_product_site *site, td_node n);

#endif
