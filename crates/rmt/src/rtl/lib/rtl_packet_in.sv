// Packets from AXI4-Stream: each goes to a slot of the packet memory, and its first bytes, its length and its port to
// whoever parses it. There is backpressure while no slot is free. A packet that is longer than a slot is dropped to its
// end, and so is one without bytes. tuser is the port.
module rtl_packet_in #(
  parameter int BYTES = 64,        // of a beat
  parameter int FRONT = 3,         // beats that are shown
  parameter int SLOT = 4,          // bits of a slot's number
  parameter int BEAT = 5           // bits of a beat's number in a slot
) (
  input  logic                     clk,
  input  logic                     rst,
  input  logic                     s_axis_tvalid,
  output logic                     s_axis_tready,
  input  logic [BYTES*8-1:0]       s_axis_tdata,
  input  logic [BYTES-1:0]         s_axis_tkeep,   // all but in the last beat; there, the first ones
  input  logic                     s_axis_tlast,
  input  logic [8:0]               s_axis_tuser,
  // Free slots.
  input  logic                     free_valid,
  output logic                     free_ready,
  input  logic [SLOT-1:0]          free_slot,
  // The packet memory: the first byte leftmost.
  output logic                     write,
  output logic [SLOT+BEAT-1:0]     write_at,
  output logic [BYTES*8-1:0]       write_data,
  output logic                     out_valid,
  input  logic                     out_ready,
  output logic [SLOT-1:0]          out_slot,
  output logic [15:0]              out_len,
  output logic [8:0]               out_port,
  output logic [FRONT*BYTES*8-1:0] out_front,      // zero behind the packet's end
  output logic [31:0]              too_long        // packets that were dropped
);
  logic [BEAT:0] beat;
  logic [FRONT*BYTES*8-1:0] front, front_now;
  logic [BYTES*8-1:0] data;
  logic [15:0] count;
  integer i;
  always_comb begin
    count = '0;
    for (i = 0; i < BYTES; i = i + 1) begin
      data[(BYTES-1-i)*8 +: 8] = s_axis_tkeep[i] ? s_axis_tdata[i*8 +: 8] : 8'd0;
      count = count + 16'(s_axis_tkeep[i]);
    end
    front_now = beat == 0 ? '0 : front;
    for (i = 0; i < FRONT; i = i + 1)
      if (32'(beat) == i) front_now[(FRONT-1-i)*BYTES*8 +: BYTES*8] = data;
  end
  logic taken, fits;
  assign fits = !beat[BEAT];
  // The last beat waits until the packet can be handed on.
  assign s_axis_tready = free_valid && (!s_axis_tlast || out_ready);
  assign taken = s_axis_tvalid && s_axis_tready;
  assign out_len = 16'(32'(beat) * BYTES) + count;
  assign out_valid = s_axis_tvalid && free_valid && s_axis_tlast && fits && out_len != 0;
  assign free_ready = out_valid && out_ready;
  assign {out_slot, out_port, out_front} = {free_slot, s_axis_tuser, front_now};
  assign {write, write_at, write_data} = {taken && fits, free_slot, beat[BEAT-1:0], data};
  always_ff @(posedge clk) begin
    if (taken) begin
      front <= front_now;
      if (fits) beat <= beat + 1;
      if (s_axis_tlast) beat <= '0;
      if (s_axis_tlast && !fits) too_long <= too_long + 1;
    end
    if (rst) {beat, too_long} <= '0;
  end
endmodule
