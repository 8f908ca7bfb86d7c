/* cuda.h: stand-in for the driver API header: the names the public headers need, with the values of
 * the real one. There is no driver behind it. Used by the sim presets only. */
#ifndef SWL_SIM_CUDA_H
#define SWL_SIM_CUDA_H

#include <stdint.h>

#define CUDA_VERSION 13000

#ifdef __cplusplus
extern "C" {
#endif

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

#ifdef __cplusplus
}
#endif
#endif
