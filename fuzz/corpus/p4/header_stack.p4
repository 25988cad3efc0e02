// Header stacks are not part of the subset.
#include "../frame.p4"

struct stacked_t {
    seg_h[4] segs;
}
