"""Every number that bounds input: sizes, depths, counts, times. Each stands with its reason.

A bound is generous to honest use and far below what would hurt the machine that reads it.
"""

# What arrives over HTTP.
MAX_BODY_BYTES = 4 * 1024 * 1024  # a config.json that names 21,843 labels twice is 1.4 MB; nothing honest is larger
MAX_JSON_DEPTH = 32  # composite configs nest 5 deep; Python's parser and encoders recurse on depth
MAX_HEAD_BYTES = 64 * 1024  # of a request's first line and headers; all services of one host share its cookies
MAX_HEADER_SECONDS = 10.0  # uvicorn waits for ever on a half-sent request
MAX_BODY_SECONDS = 30.0  # a body that drips in slower than this is an attack or a dead client

# What is repeated back in a message.
MAX_ECHO_CHARACTERS = 40  # longer than any name we know; short enough for a log line
MAX_SUGGESTIONS = 3

# Models written as layers.
MAX_LAYERS = 2_000  # the deepest nets trained (1001-layer ResNet) have this order; each costs the builder a module
MAX_LAYER_NESTING = 8  # residual inside residual; nobody reads deeper
MAX_STACKED_LAYERS = 256  # `num_layers` of one recurrent or encoder layer
MAX_DIMENSIONS = 6  # per sample: video is 4 (channels, frames, height, width)
MAX_DIMENSION = 2**24  # one axis: the largest vocabularies and one hour of 4.6 kHz audio stay below
MAX_ELEMENTS_PER_SAMPLE = 2**34  # one tensor, one sample: 64 GiB in fp32, beyond any device's tensor
MAX_PARAMETERS = 10**13  # ten times the largest models published; 40 TB in fp32
MAX_RECURRENT_STEPS = 100_000  # a recurrent layer is traced step by step

# Models written as a Hugging Face config.
MAX_CONFIG_ENTRIES = 20_000  # keys and list items, labels aside; the largest composite configs have some hundreds
MAX_CONFIG_LABELS = 1_000_000  # id2label is only counted
MAX_CONFIG_STRING = 200  # names of activations and classes; chat templates do not belong in a model
MAX_CONFIG_COUNT = 1_024  # layers, blocks, stages, repeats: each costs a module
MAX_CONFIG_EXPERTS = 2**16  # 16,384 rows of a table in Doge; where each is a module, MAX_MODULES is the bound
MAX_CONFIG_INTEGER = 2**25  # widths, vocabularies and positions (20,000,000 n-grams in transformers' Qwen 4 Exp)
MAX_CONFIG_FREE_INTEGER = 2**31 - 1  # token ids, seeds, lengths of generation: nothing is made that long
MIN_CONFIG_INTEGER = -(2**16)  # -1 and -100 stand for "none"
MAX_CONFIG_NUMBER = 1e39  # the least number of fp32 (-3.4e38) is used as a mask value
MAX_SEQUENCE_LENGTH = 1_048_576  # tokens; the longest context offered today
MAX_IMAGE_SIDE = 8_192  # pixels
MAX_AUDIO_SAMPLES = 16_000 * 600  # ten minutes at 16 kHz
MAX_MODULES = 100_000  # while a model is built: 3 to 5 KB of Python objects each

# Models written as a summary.
MAX_SUMMARY_FLOPS = 10**19  # one sample; a 10-trillion-parameter model over a million tokens
MAX_SUMMARY_BYTES = 10**15
MAX_SUMMARY_OPERATIONS = 10**7

# Workloads.
MAX_BATCH_SIZE = 2**24  # 16.8 million rows; a whole tabular data set in one batch
MAX_DATASET_SAMPLES = 10**12
MAX_EPOCHS = 10**9
MAX_LOG_EVERY = 10**9
MAX_DEVICES = 64  # names in one request
MAX_NAME_CHARACTERS = 200  # a profile's or a device's name
MAX_SAID_CHARACTERS = 400  # of a failure of torch's, in a trace: its first line, and a few words of ours

# Times that a request may ask for, in seconds.
MAX_TIME_LIMIT_SECONDS = 3_600.0  # of one measurement; an hour holds the machine's only slot long enough
MAX_EXPERIMENT_EPOCHS = 1_000_000  # one step each: about five minutes at 0.3 ms
MIN_SURVEY_SECONDS = 0.1  # less than any machine is read in
MAX_SURVEY_SECONDS = 60.0  # a driver that has not answered by then hangs

# Profiles that come from elsewhere.
MAX_PROFILE_BYTES = MAX_BODY_BYTES  # a full calibration of four plans is 0.8 MB, each further one 0.1
MAX_PROFILE_PLANS = 256  # 32 thread counts in two precisions, six devices in four: 88; each is an option to rank
MAX_PLAN_POINTS = 2_000  # of one plan; 100 is usual, and whatever is priced is looked for among them
MAX_PLAN_NETWORKS = 400  # of one plan; a full calibration has 78, and a fit's time grows with the square
MAX_PLAN_OPERATIONS = 40_000  # in the traces of one plan's networks together, which have about 60 each; each is priced
# Operations in contexts of one plan, and of one device by its host's clock, under all its plans; a full calibration has
# 4,400 and 5,000, and likewise.
MAX_PLAN_COSTS = 20_000
MAX_PROFILE_POINTS = 20_000  # 100 a plan, on a machine with 32 thread counts and six devices
MAX_PROFILE_NETWORKS = 5_000
MAX_PROFILE_TRACES = 200
MAX_CALIBRATIONS = 1_000  # whose means one profile holds
MAX_METHOD = 1_000
MAX_TRACE_OPERATIONS = 20_000  # equal ones are merged: the largest networks have some hundreds
MAX_PROFILE_ENTRIES = 64  # parameters of a point, names of software, figures of noise, variables of a plan
MAX_TIMING_SAMPLES = 10_000
MAX_THREADS = 65_536
MIN_POINT_SECONDS = 1e-12  # a hundredth of a cycle: nothing that was measured is shorter
MAX_POINT_SECONDS = 1e6  # eleven days
MAX_KNOTS = 1000  # of a curve over the batch; ours have a hundred at most
MAX_POINT_QUANTITY = 1e18  # flops or bytes of one execution
# What a point does in a second: ten times or more what there is, as a faster convolution computes less than is counted.
MAX_THREAD_FLOPS = 5e13  # AMX: 1,024 in bf16 a cycle and core ("Intel Architecture Optimization Manual"), 5e12 at 5 GHz
MAX_DEVICE_FLOPS = 5e16  # a B300 computes 2.5e15 in bf16 (NVIDIA's data sheet, dense)
MAX_THREAD_BYTES = 1e13  # a first cache reads and writes 192 bytes a cycle (the same manual): 1e12 at 5 GHz
MAX_DEVICE_BYTES = 1e15  # a B300's memory moves 8e12 (the data sheet), caches some times that
