// A packet generator in front of ingress: each PERIOD clocks a batch of packets, between those of the stream. Each is a
// beat with Tofino's `pktgen_timer_header_t`: pipe and application 0, the batch's number, the packet's number in it.
// After each of its packets, one of the stream goes first where one waits.
module rtl_packet_generator #(
  parameter int BYTES = 64                  // of a beat
) (
  input  logic               clk,
  input  logic               rst,
  input  logic [31:0]        period,        // clocks from batch to batch; 0 makes none
  input  logic [15:0]        count,         // packets of a batch
  input  logic [8:0]         port,          // at which they come
  input  logic               in_tvalid,
  output logic               in_tready,
  input  logic [BYTES*8-1:0] in_tdata,
  input  logic [BYTES-1:0]   in_tkeep,
  input  logic               in_tlast,
  input  logic [8:0]         in_tuser,
  output logic               out_tvalid,
  input  logic               out_tready,
  output logic [BYTES*8-1:0] out_tdata,
  output logic [BYTES-1:0]   out_tkeep,
  output logic               out_tlast,
  output logic [8:0]         out_tuser,
  output logic               generated,     // one of this generator's packets goes on
  output logic [15:0]        batch,         // its numbers
  output logic [15:0]        number
);
  // `mine` holds the way for a packet of this generator. A batch that is due while one is under way is left out.
  logic [31:0] clocks;
  logic due, mine, midway, ends, is_last, fires;
  assign fires = period != 0 && clocks >= period - 1;
  assign is_last = number == count - 1;
  assign generated = mine && out_tready;
  assign ends = mine ? out_tready : in_tvalid ? out_tready && in_tlast : !midway;
  assign in_tready = out_tready && !mine;
  assign out_tvalid = mine || in_tvalid;
  assign out_tlast = mine || in_tlast;
  assign out_tuser = mine ? port : in_tuser;
  assign out_tkeep = mine ? BYTES'(6'h3f) : in_tkeep;
  // The first byte lies lowest, each number's high byte first.
  assign out_tdata = mine ? (BYTES*8)'({number[7:0], number[15:8], batch[7:0], batch[15:8], 16'd0}) : in_tdata;
  always_ff @(posedge clk) begin
    clocks <= period == 0 || fires ? '0 : clocks + 1;
    if (fires && !due && count != 0) due <= 1'b1;
    if (generated) begin
      number <= is_last ? '0 : number + 1;
      if (is_last) begin
        due <= 1'b0;
        batch <= batch + 1;
      end
    end
    if (in_tvalid && in_tready) midway <= !in_tlast;
    if (ends) mine <= due && !(mine && (is_last || in_tvalid));
    if (rst) {clocks, due, mine, midway, number, batch} <= '0;
  end
endmodule
