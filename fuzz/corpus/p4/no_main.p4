// A program without a pipeline.
#include "../frame.p4"
