// Laminar: TCP as a match-action pipeline for Tofino 2 (thesis chapter 5).
//
// One pass for each segment, no recirculation, no buffering. Frames of hosts begin with a dma_h (headers.p4), frames
// of the network with Ethernet. docs/P4.md has how the program differs from the thesis, and why.

#include <core.p4>
#include <t2na.p4>

#include "headers.p4"
#include "ingress.p4"
#include "egress.p4"

Pipeline(
    LaminarIngressParser(), LaminarIngress(), LaminarIngressDeparser(),
    LaminarEgressParser(), LaminarEgress(), LaminarEgressDeparser()) pipe;

Switch(pipe) main;
