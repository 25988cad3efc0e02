// As long a chain as there are stages.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
        meta.a = meta.a + 1;
    }
}

#include "../pipe.p4"
