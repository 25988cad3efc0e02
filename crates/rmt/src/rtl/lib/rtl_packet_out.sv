// Packets to AXI4-Stream: a front of `in_front_len` bytes, then the bytes of a slot from `in_rest` on, `in_len` in all.
// Beats of the slot are read one behind the other and shifted to their place. The slot is free with the last beat.
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

  // Which byte of the slot the packet's first byte would be, were all of it there: below zero where headers grew.
  logic signed [16:0] origin;
  logic [SHIFT-1:0] shift;
  logic signed [16:0] base;
  assign origin = $signed({1'b0, rest}) - $signed({1'b0, front_len});
  assign shift = origin[SHIFT-1:0];
  assign base = origin >>> SHIFT;

  // Two reads fill the window of the first beat; each beat that leaves moves it on by one.
  typedef enum logic [1:0] {IDLE, FIRST, SECOND, SEND} step_t;
  step_t step;
  logic [8:0] port;
  logic [FRONT*BYTES*8-1:0] front;
  logic [15:0] front_len, rest, len, at;
  logic has_slot;
  logic [SLOT-1:0] slot;
  logic [BYTES*8-1:0] previous;
  logic signed [16:0] number;
  logic leaves, last;
  assign in_ready = step == IDLE;
  assign last = 32'(len) - 32'(at) <= BYTES;
  assign leaves = step == SEND && (!m_axis_tvalid || m_axis_tready);
  assign read = step != IDLE && (step != SEND || leaves);
  // The beat that is read now: the next two at first, then the one behind them.
  assign number = base + $signed({1'b0, at} >> SHIFT) + (step == FIRST ? 17'sd0 : step == SECOND ? 17'sd1 : 17'sd2);
  assign read_at = {slot, number[BEAT-1:0]};
  assign free_valid = leaves && last && has_slot;
  assign free_slot = slot;
  wire unused_bits = &{1'b0, number};

  logic [2*BYTES*8-1:0] window;
  logic [BYTES*8-1:0] moved, shown, beat;
  integer i;
  always_comb begin
    window = {previous, read_data};
    moved = window[2*BYTES*8-1-32'(shift)*8 -: BYTES*8];
    shown = '0;
    for (i = 0; i < FRONT; i = i + 1)
      if (32'(at) == i * BYTES) shown = front[(FRONT-1-i)*BYTES*8 +: BYTES*8];
    for (i = 0; i < BYTES; i = i + 1) begin
      beat[i*8 +: 8] = 32'(at) + i < 32'(front_len) ? shown[(BYTES-1-i)*8 +: 8] : moved[(BYTES-1-i)*8 +: 8];
      if (32'(at) + i >= 32'(len)) beat[i*8 +: 8] = '0;
    end
  end

  always_ff @(posedge clk) begin
    if (m_axis_tready) m_axis_tvalid <= 1'b0;
    case (step)
      IDLE: if (in_valid) begin
        {port, front, front_len, rest, len} <= {in_port, in_front, in_front_len, in_rest, in_len};
        {has_slot, slot, at} <= {in_has_slot, in_slot, 16'd0};
        step <= FIRST;
      end
      FIRST: step <= SECOND;
      SECOND: begin
        previous <= read_data;
        step <= SEND;
      end
      SEND: if (leaves) begin
        m_axis_tvalid <= 1'b1;
        m_axis_tdata <= beat;
        for (i = 0; i < BYTES; i = i + 1) m_axis_tkeep[i] <= 32'(at) + i < 32'(len);
        m_axis_tlast <= last;
        m_axis_tuser <= port;
        previous <= read_data;
        at <= at + 16'(BYTES);
        if (last) step <= IDLE;
      end
    endcase
    if (rst) begin
      step <= IDLE;
      m_axis_tvalid <= 1'b0;
    end
  end
endmodule
