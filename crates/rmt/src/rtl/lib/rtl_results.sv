// What leaves a half, which has no backpressure, until somebody takes it: each packet, then the copies that it made,
// one a clock. Who feeds the half lets in no more packets than there is room for here.
module rtl_results #(
  parameter int OUT = 64,          // bytes of headers
  parameter int COPIES = 1,        // mirrors of the half's deparser; at least one
  parameter int COPY_TOTAL = 8,    // bits of all of them
  parameter logic [COPIES*16-1:0] COPY_BITS = '0,
  parameter int FRONT = 64,        // bytes of a copy that are shown
  parameter int ADDR = 6
) (
  input  logic                  clk,
  input  logic                  rst,
  input  logic [159:0]          sessions,     // 16 of 10 bits: there is one, its port
  input  logic                  out_valid,    // ports of the half
  input  logic                  out_drop,
  input  logic [8:0]            out_port,
  input  logic [6:0]            out_queue,
  input  logic                  out_bypass,
  input  logic [15:0]           out_head,
  input  logic [15:0]           out_rest,
  input  logic [OUT*8-1:0]      out_data,
  input  logic [COPIES-1:0]     mirror_valid,
  input  logic [COPIES*8-1:0]   mirror_session,
  input  logic [8:0]            mirror_port,
  input  logic [6:0]            mirror_queue,
  input  logic [COPY_TOTAL-1:0] mirror_data,
  output logic                  item_valid,
  input  logic                  item_ready,
  output logic                  item_ends,    // the last of what a packet made
  output logic                  item_copy,
  output logic                  item_drop,
  output logic                  item_bypass,
  output logic [8:0]            item_port,
  output logic [6:0]            item_queue,
  output logic [15:0]           item_head,    // of a packet; of a copy, its length
  output logic [15:0]           item_rest,
  output logic [OUT*8-1:0]      item_data,    // of a packet
  output logic [FRONT*8-1:0]    item_front    // of a copy, the first byte leftmost
);
  typedef struct packed {
    logic                  drop;
    logic [8:0]            port;
    logic [6:0]            qid;
    logic                  bypass;
    logic [15:0]           head;
    logic [15:0]           rest;
    logic [OUT*8-1:0]      data;
    logic [COPIES-1:0]     copies;
    logic [COPIES*8-1:0]   sessions;
    logic [8:0]            copy_port;
    logic [6:0]            copy_queue;
    logic [COPY_TOTAL-1:0] copy_data;
  } result_t;
  localparam int WIDTH = 66 + OUT * 8 + COPIES * 9 + COPY_TOTAL;
  result_t made, old;
  assign made = {out_drop, out_port, out_queue, out_bypass, out_head, out_rest, out_data, mirror_valid, mirror_session,
    mirror_port, mirror_queue, mirror_data};
  logic unused_room;
  rtl_fifo #(.WIDTH(WIDTH), .ADDR(ADDR)) results (
    .clk(clk), .rst(rst), .in_valid(out_valid), .in_ready(unused_room), .in_data(made),
    .out_valid(item_valid), .out_ready(item_ready && item_ends), .out_data(old)
  );

  // Which copies have a session, and which of them are still to come. The packet is shown first.
  logic shown;
  logic [COPIES-1:0] real_copies, done, to_come, first;
  logic [COPY_TOTAL-1:0] lowered;
  integer i, at;
  always_comb begin
    real_copies = '0;
    for (i = 0; i < COPIES; i = i + 1)
      real_copies[i] = old.copies[i] && old.sessions[i*8+4 +: 4] == 0 && sessions[32'(old.sessions[i*8 +: 4])*10+9];
  end
  assign to_come = real_copies & ~done;
  assign first = shown ? to_come & (~to_come + 1'b1) : '0;
  assign item_ends = (to_come & ~first) == 0;
  assign item_copy = |first;
  always_comb begin
    item_port = old.port;
    item_head = old.head;
    lowered = '0;
    at = 0;
    // Copies lie one above the other, the first lowest.
    for (i = 0; i < COPIES; i = i + 1) begin
      if (first[i]) begin
        item_port = old.copy_port != 0 ? old.copy_port : sessions[32'(old.sessions[i*8 +: 4])*10 +: 9];
        item_head = COPY_BITS[i*16 +: 16] >> 3;
        lowered = old.copy_data >> at;
      end
      at = at + 32'(COPY_BITS[i*16 +: 16]);
    end
  end
  assign item_drop = old.drop && !item_copy;
  assign item_bypass = old.bypass && !item_copy;
  assign item_queue = item_copy ? old.copy_queue : old.qid;
  assign item_rest = old.rest;
  assign item_data = old.data;
  assign item_front = (FRONT*8)'((FRONT*8+COPY_TOTAL)'(lowered) << (FRONT * 8 - 32'(item_head) * 8));
  always_ff @(posedge clk) begin
    if (item_valid && item_ready) begin
      shown <= !item_ends;
      done <= item_ends ? '0 : done | first;
    end
    if (rst) {shown, done} <= '0;
  end
endmodule
