// The first Tofino.
#include <tna.p4>
