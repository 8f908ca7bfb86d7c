/* version.h: version number and banner of the library. Layer: src/api; no memory. */
#ifndef SWL_VERSION_H
#define SWL_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

/* NCCL_EP_VERSION_CODE, or the number of SWIMLANE_REPORT_VERSION. */
int swl_version(void);
/* Name, version and build toolkit. */
const char *swl_version_text(void);

#ifdef __cplusplus
}
#endif
#endif
