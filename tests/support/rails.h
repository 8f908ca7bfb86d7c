/* rails.h: which NIC of its rank a region lies on. Layer: tests of the emulator; the program links
 * with --wrap=swl_soft_ops. */
#ifndef SWL_TESTS_SUPPORT_RAILS_H
#define SWL_TESTS_SUPPORT_RAILS_H

#include <stdint.h>

/* Place of the software NIC among those of its rank; UINT32_MAX: no region has had this key. */
uint32_t rail_of(uint32_t lkey);

#endif
