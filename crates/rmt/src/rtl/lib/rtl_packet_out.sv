// Packets to AXI4-Stream: a front of `in_front_len` bytes, then the bytes of a slot from `in_rest` on, `in_len` in all.
// A beat a clock, also from packet to packet. Beats of the slot are read one behind the other and shifted to their
// place. Where the first beat has bytes of two beats of the slot, the first of them takes a clock of its own.
module rtl_packet_out #(
  parameter int BYTES = 64,
  parameter int FRONT = 3,         // most beats of a front
  parameter int SLOT = 4,
  parameter int BEAT = 5
) (
  input  logic                     clk,
  input  logic                     rst,
  input  logic                     in_valid,
  output logic                     in_ready,
  input  logic [8:0]               in_port,
  input  logic [FRONT*BYTES*8-1:0] in_front,       // the first byte leftmost
  input  logic [15:0]              in_front_len,
  input  logic [15:0]              in_rest,
  input  logic [15:0]              in_len,
  input  logic                     in_has_slot,
  input  logic [SLOT-1:0]          in_slot,
  output logic                     read,           // the beat stands in the next clock, until another is read
  output logic [SLOT+BEAT-1:0]     read_at,
  input  logic [BYTES*8-1:0]       read_data,
  output logic                     free_valid,
  output logic [SLOT-1:0]          free_slot,
  output logic                     m_axis_tvalid,
  input  logic                     m_axis_tready,
  output logic [BYTES*8-1:0]       m_axis_tdata,
  output logic [BYTES-1:0]         m_axis_tkeep,
  output logic                     m_axis_tlast,
  output logic [8:0]               m_axis_tuser
);
  localparam int SHIFT = $clog2(BYTES);

  // The packet whose beats are read, and which byte of the slot its first byte would be, were all of it there: below
  // zero where headers grew.
  logic has, has_slot, ends, goes;
  logic [8:0] port;
  logic [FRONT*BYTES*8-1:0] front;
  logic [15:0] front_len, rest, len, at;
  logic [SLOT-1:0] slot;
  logic signed [16:0] origin, base, number;
  logic [SHIFT-1:0] shift;
  assign origin = $signed({1'b0, rest}) - $signed({1'b0, front_len});
  assign shift = origin[SHIFT-1:0];
  assign base = (origin >>> SHIFT) + $signed({1'b0, at} >> SHIFT);

  // Of the beat that leaves next: bytes of the front, bytes in all; whether it has bytes of the slot's beat `base`, and
  // of the one behind. The clock before may have read the first of them.
  function automatic logic [SHIFT:0] bytes(input logic [15:0] of, input logic [15:0] from);
    bytes = of <= from ? '0 : of - from >= 16'(BYTES) ? (SHIFT+1)'(BYTES) : (SHIFT+1)'(of - from);
  endfunction
  logic [SHIFT:0] in_the_front, in_all;
  logic first, second, known, alone, primes;
  assign in_the_front = bytes(front_len, at);
  assign in_all = bytes(len, at);
  assign first = in_the_front < in_all && 8'(shift) + 8'(in_the_front) < 8'(BYTES);
  assign second = in_the_front < in_all && 8'(shift) + 8'(in_all) > 8'(BYTES);
  assign alone = first && !second && !known;
  assign primes = first && second && !known;
  assign number = base + (alone || primes ? 17'sd0 : 17'sd1);
  assign read_at = {slot, number[BEAT-1:0]};
  assign read = has && goes;
  assign ends = read && !primes && 32'(len) - 32'(at) <= BYTES;
  assign in_ready = !has || ends;
  assign free_valid = ends && has_slot;
  assign free_slot = slot;
  wire unused_bits = &{1'b0, number};
  logic [BYTES*8-1:0] shown;
  always_comb begin
    integer n;
    shown = '0;
    for (n = 0; n < FRONT; n = n + 1)
      if (32'(at) == n * BYTES) shown = front[(FRONT-1-n)*BYTES*8 +: BYTES*8];
  end
  always_ff @(posedge clk) begin
    if (read) begin
      known <= !alone;
      if (!primes) at <= at + 16'(BYTES);
    end
    if (in_ready) begin
      has <= in_valid;
      {port, front, front_len, rest, len} <= {in_port, in_front, in_front_len, in_rest, in_len};
      {has_slot, slot, at, known} <= {in_has_slot, in_slot, 16'd0, 1'b0};
    end
    if (rst) has <= 1'b0;
  end

  // What is read stands in the next clock: behind it, its place in the packet.
  logic leaves, leaves_last, only;
  logic [SHIFT-1:0] moves;
  logic [SHIFT:0] fronts, count;
  logic [8:0] to;
  logic [BYTES*8-1:0] ahead, previous, moved, beat;
  logic [2*BYTES*8-1:0] window;
  assign goes = !leaves || !m_axis_tvalid || m_axis_tready;
  always_comb begin
    integer n;
    window = only ? {read_data, {BYTES*8{1'b0}}} : {previous, read_data};
    moved = window[2*BYTES*8-1-32'(moves)*8 -: BYTES*8];
    for (n = 0; n < BYTES; n = n + 1) begin
      beat[n*8 +: 8] = (SHIFT+1)'(n) < fronts ? ahead[(BYTES-1-n)*8 +: 8] : moved[(BYTES-1-n)*8 +: 8];
      if ((SHIFT+1)'(n) >= count) beat[n*8 +: 8] = '0;
    end
  end
  always_ff @(posedge clk) begin
    integer n;
    if (m_axis_tready) m_axis_tvalid <= 1'b0;
    if (goes) begin
      leaves <= has && !primes;
      {leaves_last, only, moves, to} <= {ends, alone, shift, port};
      {fronts, count, ahead} <= {in_the_front, in_all, shown};
      previous <= read_data;
    end
    if (leaves && goes) begin
      m_axis_tvalid <= 1'b1;
      m_axis_tdata <= beat;
      for (n = 0; n < BYTES; n = n + 1) m_axis_tkeep[n] <= (SHIFT+1)'(n) < count;
      m_axis_tlast <= leaves_last;
      m_axis_tuser <= to;
    end
    if (rst) {leaves, m_axis_tvalid} <= '0;
  end
endmodule
