"""Functions that are the driver's under another name, and where the two differ in what they are given."""

from __future__ import annotations

from nbtc.libcuda.registry import DRIVER, RUNTIME

_STREAMS = """
    cudaStreamCreateWithFlags=cuStreamCreate cudaStreamCreateWithPriority cudaStreamDestroy=cuStreamDestroy_v2
    cudaStreamSynchronize cudaStreamQuery cudaStreamWaitEvent cudaStreamGetFlags cudaStreamGetPriority cudaStreamGetId
    cudaStreamGetDevice cudaStreamAddCallback cudaLaunchHostFunc cudaLaunchHostFunc_v2 cudaStreamAttachMemAsync
    cudaStreamCopyAttributes cudaStreamSetAttribute cudaStreamGetAttribute cudaThreadExchangeStreamCaptureMode
    cudaEventCreateWithFlags=cuEventCreate cudaEventDestroy=cuEventDestroy_v2 cudaEventRecord cudaEventRecordWithFlags
    cudaEventQuery cudaEventSynchronize cudaEventElapsedTime cudaDeviceSynchronize=cuCtxSynchronize
    cudaDeviceSetLimit=cuCtxSetLimit cudaDeviceGetLimit=cuCtxGetLimit
    cudaDeviceGetStreamPriorityRange=cuCtxGetStreamPriorityRange cudaCtxResetPersistingL2Cache
    cudaProfilerStart cudaProfilerStop cudaDriverGetVersion
"""
_MEMORY = """
    cudaHostAlloc=cuMemHostAlloc cudaMallocHost=cuMemAllocHost_v2 cudaHostRegister=cuMemHostRegister_v2
    cudaHostUnregister=cuMemHostUnregister cudaHostGetDevicePointer=cuMemHostGetDevicePointer_v2
    cudaHostGetFlags=cuMemHostGetFlags cudaMallocAsync=cuMemAllocAsync cudaFreeAsync=cuMemFreeAsync
    cudaMallocFromPoolAsync=cuMemAllocFromPoolAsync cudaMemGetInfo=cuMemGetInfo_v2 cudaMemAdvise=cuMemAdvise_v2
    cudaMemPrefetchAsync=cuMemPrefetchAsync_v2 cudaMemRangeGetAttribute cudaMemcpyPeerAsync cudaMemcpyPeer
    cudaMemcpyBatchAsync=cuMemcpyBatchAsync_v2
    cudaDeviceGetDefaultMemPool cudaDeviceGetMemPool cudaDeviceSetMemPool cudaMemPoolCreate cudaMemPoolDestroy
    cudaMemPoolSetAttribute cudaMemPoolGetAttribute cudaMemPoolTrimTo cudaMemPoolSetAccess cudaMemPoolGetAccess
    cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer
    cudaMemPoolImportPointer cudaIpcGetMemHandle cudaIpcOpenMemHandle=cuIpcOpenMemHandle_v2 cudaIpcCloseMemHandle
    cudaIpcGetEventHandle cudaIpcOpenEventHandle
    cudaMemGetDefaultMemPool cudaMemGetMemPool cudaMemSetMemPool
    cudaDeviceCanAccessPeer cudaDeviceGetPCIBusId cudaDeviceGetByPCIBusId cudaDeviceGetP2PAttribute
    cudaDeviceGetGraphMemAttribute cudaDeviceSetGraphMemAttribute cudaDeviceGraphMemTrim
    cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryUnload cudaLibraryGetKernel cudaLibraryGetGlobal
    cudaLibraryGetManaged cudaLibraryGetKernelCount cudaLibraryEnumerateKernels
"""
_GRAPHS = """
    cudaStreamBeginCapture=cuStreamBeginCapture_v2 cudaStreamBeginCaptureToGraph cudaStreamEndCapture
    cudaStreamIsCapturing cudaStreamGetCaptureInfo=cuStreamGetCaptureInfo_v3
    cudaStreamUpdateCaptureDependencies=cuStreamUpdateCaptureDependencies_v2
    cudaGraphCreate cudaGraphDestroy cudaGraphClone cudaGraphNodeFindInClone cudaGraphGetNodes cudaGraphGetRootNodes
    cudaGraphGetEdges=cuGraphGetEdges_v2 cudaGraphInstantiate=cuGraphInstantiateWithFlags
    cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams cudaGraphExecDestroy cudaGraphUpload cudaGraphLaunch
    cudaGraphExecUpdate=cuGraphExecUpdate_v2 cudaGraphDebugDotPrint cudaGraphAddMemsetNode cudaGraphAddHostNode
    cudaGraphMemsetNodeSetParams cudaGraphHostNodeSetParams cudaGraphExecMemsetNodeSetParams
    cudaGraphExecHostNodeSetParams cudaGraphAddEmptyNode cudaGraphAddChildGraphNode cudaGraphAddEventRecordNode
    cudaGraphAddEventWaitNode cudaGraphChildGraphNodeGetGraph cudaGraphNodeGetType
    cudaGraphAddDependencies=cuGraphAddDependencies_v2 cudaGraphRemoveDependencies=cuGraphRemoveDependencies_v2
    cudaGraphAddMemAllocNode cudaGraphAddMemFreeNode cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams
    cudaGraphDestroyNode cudaGraphNodeSetEnabled cudaGraphNodeGetEnabled
    cudaUserObjectCreate cudaUserObjectRetain cudaUserObjectRelease cudaGraphRetainUserObject
    cudaGraphReleaseUserObject cudaGraphNodeGetDependencies=cuGraphNodeGetDependencies_v2
    cudaGraphNodeGetDependentNodes=cuGraphNodeGetDependentNodes_v2
"""
for _pair in (_STREAMS + _MEMORY + _GRAPHS).split():
    _name, _, _same = _pair.partition("=")
    RUNTIME[_name] = DRIVER[_same or _name.replace("cuda", "cu", 1)]
