// A misspelt field.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.verdikt = 1;
    }
}

#include "../pipe.p4"
