/* A few of NVML's functions with the real library's names and shapes of data, for the real nvidia-ml-py to load.
   Two cards of a server; FAKE_NVML_INIT is what nvmlInit answers (18: library and kernel module do not fit). */
#include <stdlib.h>
#include <string.h>

typedef struct { int number; } *Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
typedef union { double real; unsigned word; unsigned long long wide; } Value;
typedef struct { unsigned field, scope; long long stamp, latency; unsigned type, outcome; Value value; } Field;
typedef struct { unsigned char cluster[16]; unsigned status, clique; unsigned char state; } Fabric;

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

static struct { int number; } cards[2] = {{0}, {1}};

int nvmlInitWithFlags(unsigned flags) { char *told = getenv("FAKE_NVML_INIT"); return told ? atoi(told) : OK; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strncpy(text, "13.580.65.06", size); return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.65.06", size); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    *device = (Device)&cards[index];
    return OK;
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned size) {
    strncpy(text, device->number ? "GPU-b" : "GPU-a", size);
    return OK;
}

int nvmlDeviceGetName(Device device, char *text, unsigned size) {
    strncpy(text, "NVIDIA H100 80GB HBM3", size);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, device->number ? "00000000:E4:00.0" : "00000000:1B:00.0");
    return OK;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    memory->total = 85520809984ULL, memory->free = 84000000000ULL, memory->used = 0;
    return device->number ? GPU_IS_LOST : OK;
}

int nvmlDeviceGetMemoryBusWidth(Device device, unsigned *bits) { *bits = 5120; return OK; }
int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *clock) { *clock = kind ? 2619 : 1980; return OK; }
int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) { *major = 9, *minor = 0; return OK; }
int nvmlDeviceGetNumGpuCores(Device device, unsigned *cores) { *cores = 16896; return OK; }
int nvmlDeviceGetArchitecture(Device device, unsigned *answer) { *answer = 9; return OK; }
int nvmlDeviceGetPersistenceMode(Device device, unsigned *mode) { *mode = 0; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *mask) { *mask = 0x24; return OK; }
int nvmlDeviceGetEccMode(Device device, unsigned *now, unsigned *next) { *now = *next = 1; return OK; }

int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    rates->gpu = 99, rates->memory = 50;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, unsigned long long *count) {
    *count = kind + 10 * counter;
    return OK;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *fixed, unsigned *lost, unsigned *pending, unsigned *failed) {
    *fixed = 1, *lost = 2, *pending = 0, *failed = 1;
    return OK;
}

int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    *active = 1;
    return link < 18 ? OK : INVALID_ARGUMENT;
}

int nvmlDeviceGetFieldValues(Device device, int count, Field *fields) {
    fields[0].outcome = fields[0].field == 90 ? OK : NOT_SUPPORTED;
    fields[0].type = 1, fields[0].value.word = 26562;
    return OK;
}

int nvmlDeviceGetGpuFabricInfo(Device device, Fabric *fabric) { fabric->status = 0, fabric->state = 3; return OK; }

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *found) {
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1, found[0].pid = 1, found[0].memory = ~0ULL;
    return OK;
}
