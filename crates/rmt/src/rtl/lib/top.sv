// Both halves and what stands around them: packets in and out by AXI4-Stream, the control bus by AXI4-Lite, a memory
// for packets, and a traffic manager between the halves. Sizes are those of the program, in top_pkg.
module top #(
  parameter int SLOT = 7,          // 2^SLOT packets at most are here: no fewer than both halves have clocks
  parameter int BEAT = 5,          // of 2^BEAT beats of 64 bytes at most
  parameter int QUEUES = 4,
  parameter int DEPTH = 4,         // a queue holds 2^DEPTH packets and copies
  parameter int FLIGHT = 6,        // 2^FLIGHT packets at most are in a half: no fewer than it has clocks
  parameter int QUEUE = $clog2(QUEUES)
) (
  input  logic         clk,
  input  logic         rst,
  input  logic [47:0]  now,            // the time that packets see
  input  logic         s_axis_tvalid,
  output logic         s_axis_tready,
  input  logic [511:0] s_axis_tdata,
  input  logic [63:0]  s_axis_tkeep,
  input  logic         s_axis_tlast,
  input  logic [8:0]   s_axis_tuser,   // the port
  output logic         m_axis_tvalid,
  input  logic         m_axis_tready,
  output logic [511:0] m_axis_tdata,
  output logic [63:0]  m_axis_tkeep,
  output logic         m_axis_tlast,
  output logic [8:0]   m_axis_tuser,
  input  logic         s_axil_awvalid,
  output logic         s_axil_awready,
  input  logic [11:0]  s_axil_awaddr,
  input  logic         s_axil_wvalid,
  output logic         s_axil_wready,
  input  logic [31:0]  s_axil_wdata,
  output logic         s_axil_bvalid,
  input  logic         s_axil_bready,
  output logic [1:0]   s_axil_bresp,
  input  logic         s_axil_arvalid,
  output logic         s_axil_arready,
  input  logic [11:0]  s_axil_araddr,
  output logic         s_axil_rvalid,
  input  logic         s_axil_rready,
  output logic [31:0]  s_axil_rdata,
  output logic [1:0]   s_axil_rresp,
  // The order of things: a packet is generated; one enters ingress; something comes to a queue, or finds it full; something leaves one.
  output logic             generated,      // a packet of the generator goes in, with these numbers
  output logic [15:0]      generated_batch,
  output logic [15:0]      generated_number,
  output logic             enters,
  output logic             queued,
  output logic             queued_again,   // a copy that egress made
  output logic             queue_full,
  output logic [QUEUE-1:0] queued_in,
  output logic             dequeued,
  output logic [QUEUE-1:0] dequeued_from,
  output logic [1:0]       commands        // of the control bus: to ingress, to egress
);
  generate
    if (QUEUES < 2 || (QUEUES & (QUEUES - 1)) != 0) $error("QUEUES must be a power of two from 2 on");
    if (SLOT < 1 || SLOT > 12) $error("SLOT must be from 1 to 12: 2^SLOT packets");
    if (BEAT < 1 || BEAT > 9) $error("BEAT must be from 1 to 9: 2^BEAT beats of 64 bytes are a packet of at most 32 KiB");
    if (DEPTH < 1 || DEPTH > 16) $error("DEPTH must be from 1 to 16: 2^DEPTH places of a queue");
    if (FLIGHT < 1 || FLIGHT > 12) $error("FLIGHT must be from 1 to 12: 2^FLIGHT packets in a half");
  endgenerate

  // Sizes of the program. Yosys reads no import.
  localparam int I_IN = top_pkg::I_IN;
  localparam int I_OUT = top_pkg::I_OUT;
  localparam int I_COPIES = top_pkg::I_COPIES;
  localparam int I_COPY_TOTAL = top_pkg::I_COPY_TOTAL;
  localparam int I_CONTROL = top_pkg::I_CONTROL;
  localparam logic [I_COPIES*16-1:0] I_COPY_BITS = top_pkg::I_COPY_BITS;
  localparam int E_IN = top_pkg::E_IN;
  localparam int E_OUT = top_pkg::E_OUT;
  localparam int E_COPIES = top_pkg::E_COPIES;
  localparam int E_COPY_TOTAL = top_pkg::E_COPY_TOTAL;
  localparam int E_CONTROL = top_pkg::E_CONTROL;
  localparam logic [E_COPIES*16-1:0] E_COPY_BITS = top_pkg::E_COPY_BITS;
  localparam int BETWEEN = top_pkg::BETWEEN;
  localparam int CONTROL = top_pkg::CONTROL;
  localparam int IN_BEATS = (I_IN + BETWEEN + 63) / 64;
  localparam int OUT_BEATS = (E_OUT + BETWEEN + 63) / 64;

  // A packet between the halves: its first bytes, and the byte of its slot that follows them.
  typedef struct packed {
    logic                 bypass;
    logic                 has_slot;
    logic [SLOT-1:0]      slot;
    logic [8:0]           port;
    logic [6:0]           qid;
    logic [15:0]          len;
    logic [15:0]          rest;
    logic [BETWEEN*8-1:0] front;
  } between_t;
  localparam int BETWEEN_BITS = 50 + SLOT + BETWEEN * 8;

  // Slots: one is held ready for the packet that comes in; free again when the packet has left or was dropped.
  logic [(1<<SLOT)-1:0] used, freed_now;
  logic slot_free, slot_taken, picks;
  logic [SLOT-1:0] slot, next_slot;
  integer i;
  always_comb begin
    next_slot = '0;
    for (i = (1 << SLOT) - 1; i >= 0; i = i - 1) if (!used[i]) next_slot = SLOT'(i);
  end
  assign picks = (!slot_free || slot_taken) && !(&used);
  always_ff @(posedge clk) begin
    used <= (used & ~freed_now) | (picks ? ((1<<SLOT))'(1) << next_slot : '0);
    slot_free <= picks || slot_free && !slot_taken;
    if (picks) slot <= next_slot;
    if (rst) {used, slot_free} <= '0;
  end

  logic [511:0] memory [0:(1<<(SLOT+BEAT))-1];
  logic write, read;
  logic [SLOT+BEAT-1:0] write_at, read_at;
  logic [511:0] write_data, read_data;
  always_ff @(posedge clk) begin
    if (write) memory[write_at] <= write_data;
    if (read) read_data <= memory[read_at];
  end

  // What is generated goes between the packets of the stream.
  logic g_tvalid, g_tready, g_tlast;
  logic [511:0] g_tdata;
  logic [63:0] g_tkeep;
  logic [8:0] g_tuser, generator_port;
  logic [15:0] generator_count;
  logic [31:0] generator_period;
  rtl_packet_generator packet_generator (
    .clk(clk), .rst(rst), .period(generator_period), .count(generator_count), .port(generator_port),
    .in_tvalid(s_axis_tvalid), .in_tready(s_axis_tready), .in_tdata(s_axis_tdata), .in_tkeep(s_axis_tkeep),
    .in_tlast(s_axis_tlast), .in_tuser(s_axis_tuser), .out_tvalid(g_tvalid), .out_tready(g_tready),
    .out_tdata(g_tdata), .out_tkeep(g_tkeep), .out_tlast(g_tlast), .out_tuser(g_tuser), .generated(generated),
    .batch(generated_batch), .number(generated_number)
  );

  logic p_valid, p_ready;
  logic [SLOT-1:0] p_slot;
  logic [15:0] p_len;
  logic [8:0] p_port;
  logic [IN_BEATS*512-1:0] p_front;
  logic [31:0] too_long, tail_drops, entered, left;
  rtl_packet_in #(.FRONT(IN_BEATS), .SLOT(SLOT), .BEAT(BEAT)) packet_in (
    .s_axis_tvalid(g_tvalid), .s_axis_tready(g_tready), .s_axis_tdata(g_tdata), .s_axis_tkeep(g_tkeep),
    .s_axis_tlast(g_tlast), .s_axis_tuser(g_tuser), .free_valid(slot_free), .free_ready(slot_taken), .free_slot(slot),
    .out_valid(p_valid), .out_ready(p_ready), .out_slot(p_slot), .out_len(p_len), .out_port(p_port),
    .out_front(p_front), .*
  );

  // The control bus of both halves, and mirror sessions.
  logic [1:0] ctl_valid;
  logic ctl_write, i_done, e_done, session_write;
  logic [7:0] ctl_target;
  logic [31:0] ctl_index;
  logic [CONTROL-1:0] ctl_data, ctl_result;
  logic [I_CONTROL-1:0] i_words;
  logic [E_CONTROL-1:0] e_words;
  logic [3:0] session;
  logic [9:0] session_port;
  logic [159:0] sessions;
  assign ctl_result = i_done ? CONTROL'(i_words) : CONTROL'(e_words);
  rtl_control #(.BITS(CONTROL)) control (
    .counts({left, entered, tail_drops, too_long}), .ctl_done(i_done || e_done), .*
  );
  always_ff @(posedge clk) begin
    if (session_write) sessions[32'(session)*10 +: 10] <= session_port;
    if (rst) sessions <= '0;
  end

  // Ingress. A packet enters where there is room for what comes out of it: a half has no backpressure.
  logic i_ready, i_valid, i_drop, i_bypass;
  logic [FLIGHT:0] i_flight;
  logic [8:0] i_port, i_copy_port;
  logic [6:0] i_queue, i_copy_queue;
  logic [15:0] i_head, i_rest;
  logic [I_OUT*8-1:0] i_data;
  logic [I_COPIES-1:0] i_copies;
  logic [I_COPIES*8-1:0] i_sessions;
  logic [I_COPY_TOTAL-1:0] i_copy_data;
  assign p_ready = i_ready && !i_flight[FLIGHT];
  assign enters = p_valid && p_ready;
  ingress ingress_half (
    .clk(clk), .rst(rst), .in_valid(enters), .in_ready(i_ready), .in_len(p_len),
    .in_data(p_front[IN_BEATS*512-1 -: I_IN*8]), .in_port(p_port), .in_queue(7'd0), .in_time(now),
    .ctl_valid(ctl_valid[0]), .ctl_write(ctl_write), .ctl_target(ctl_target), .ctl_index(ctl_index),
    .ctl_data(ctl_data[I_CONTROL-1:0]), .ctl_done(i_done), .ctl_result(i_words),
    .out_valid(i_valid), .out_drop(i_drop), .out_port(i_port), .out_queue(i_queue), .out_bypass(i_bypass),
    .out_head(i_head), .out_rest(i_rest), .out_data(i_data), .mirror_valid(i_copies), .mirror_session(i_sessions),
    .mirror_port(i_copy_port), .mirror_queue(i_copy_queue), .mirror_data(i_copy_data)
  );
  logic x_valid, x_ready, x_ends, x_copy, x_drop, x_bypass, x_pops, unused_x_room, unused_x_waits;
  logic [8:0] x_port;
  logic [6:0] x_queue;
  logic [15:0] x_head, x_rest, x_len;
  logic [I_OUT*8-1:0] x_data;
  logic [BETWEEN*8-1:0] x_front;
  logic [SLOT-1:0] x_slot;
  logic [(I_IN+BETWEEN)*8-1:0] x_bytes;
  assign x_pops = x_valid && x_ready && x_ends;
  rtl_fifo #(.WIDTH(SLOT + 16 + (I_IN + BETWEEN) * 8), .ADDR(FLIGHT)) i_beside (
    .clk(clk), .rst(rst), .in_valid(enters), .in_ready(unused_x_room),
    .in_data({p_slot, p_len, p_front[IN_BEATS*512-1 -: (I_IN+BETWEEN)*8]}),
    .out_valid(unused_x_waits), .out_ready(x_pops), .out_data({x_slot, x_len, x_bytes})
  );
  rtl_results #(
    .OUT(I_OUT), .COPIES(I_COPIES), .COPY_TOTAL(I_COPY_TOTAL), .COPY_BITS(I_COPY_BITS), .FRONT(BETWEEN), .ADDR(FLIGHT)
  ) i_results (
    .clk(clk), .rst(rst), .sessions(sessions), .out_valid(i_valid), .out_drop(i_drop), .out_port(i_port),
    .out_queue(i_queue), .out_bypass(i_bypass), .out_head(i_head), .out_rest(i_rest), .out_data(i_data),
    .mirror_valid(i_copies), .mirror_session(i_sessions), .mirror_port(i_copy_port), .mirror_queue(i_copy_queue),
    .mirror_data(i_copy_data), .item_valid(x_valid), .item_ready(x_ready), .item_ends(x_ends), .item_copy(x_copy),
    .item_drop(x_drop), .item_bypass(x_bypass), .item_port(x_port), .item_queue(x_queue), .item_head(x_head),
    .item_rest(x_rest), .item_data(x_data), .item_front(x_front)
  );

  // To the traffic manager: copies that egress made go first, so that it can go on.
  between_t from_x, from_y, put, got;
  logic y_valid, y_ready, y_ends, y_copy, y_drop, y_offers, y_pops;
  logic [8:0] y_port;
  logic [15:0] y_head, y_rest;
  logic [6:0] y_queue;
  logic [E_OUT*8-1:0] y_data;
  logic [BETWEEN*8-1:0] y_front;
  logic [(BETWEEN+I_OUT+I_IN)*8-1:0] headers, behind;
  always_comb begin
    // Headers, and right behind them the packet from byte `x_rest` on.
    headers = {x_data, {(BETWEEN+I_IN)*8{1'b0}}};
    behind = {x_bytes, {I_OUT*8{1'b0}}} << (32'(x_rest) * 8);
    headers = headers & ~({(BETWEEN+I_OUT+I_IN)*8{1'b1}} >> (32'(x_head) * 8));
    from_x = '0;
    {from_x.bypass, from_x.has_slot, from_x.slot} = {x_bypass, !x_copy, x_slot};
    {from_x.port, from_x.qid} = {x_port, x_queue};
    from_x.len = x_copy ? x_head : x_head + (x_len > x_rest ? x_len - x_rest : 16'd0);
    from_x.rest = x_rest + 16'(BETWEEN) - x_head;
    from_x.front = x_copy ? x_front : whole[(BETWEEN+I_OUT+I_IN)*8-1 -: BETWEEN*8];
    from_y = '0;
    {from_y.port, from_y.qid, from_y.len, from_y.front} = {y_port, y_queue, y_head, y_front};
    put = y_offers ? from_y : from_x;
  end
  logic [(BETWEEN+I_OUT+I_IN)*8-1:0] whole;
  assign whole = headers | (behind >> (32'(x_head) * 8));
  assign y_offers = y_valid && y_copy;
  assign x_ready = x_drop || !y_offers;
  assign queued = y_offers || x_valid && !x_drop;
  assign queued_again = y_offers;
  assign commands = ctl_valid;
  assign queued_in = put.qid[QUEUE-1:0];
  logic q_valid, q_ready;
  rtl_traffic_manager #(.WIDTH(BETWEEN_BITS), .QUEUES(QUEUES), .ADDR(DEPTH)) traffic_manager (
    .clk(clk), .rst(rst), .in_valid(queued), .in_queue(queued_in), .in_data(put), .drops(queue_full),
    .out_valid(q_valid), .out_ready(q_ready), .out_queue(dequeued_from), .out_data(got)
  );
  logic x_frees, o_frees, y_frees;
  assign x_frees = x_valid && !x_copy && (x_drop || !y_offers && queue_full);

  // Egress; what passes it by goes to the way out at once.
  logic e_ready, e_enters, e_valid, e_drop, unused_e_bypass, passes, pass_room;
  logic [FLIGHT:0] e_flight;
  logic [8:0] e_port, e_copy_port;
  logic [6:0] e_queue, e_copy_queue;
  logic [15:0] e_head, e_rest;
  logic [E_OUT*8-1:0] e_data;
  logic [E_COPIES-1:0] e_copies;
  logic [E_COPIES*8-1:0] e_sessions;
  logic [E_COPY_TOTAL-1:0] e_copy_data;
  assign q_ready = got.bypass ? pass_room : e_ready && !e_flight[FLIGHT];
  assign dequeued = q_valid && q_ready;
  assign e_enters = dequeued && !got.bypass;
  egress egress_half (
    .clk(clk), .rst(rst), .in_valid(e_enters), .in_ready(e_ready), .in_len(got.len),
    .in_data(got.front[BETWEEN*8-1 -: E_IN*8]), .in_port(got.port), .in_queue(got.qid), .in_time(now),
    .ctl_valid(ctl_valid[1]), .ctl_write(ctl_write), .ctl_target(ctl_target), .ctl_index(ctl_index),
    .ctl_data(ctl_data[E_CONTROL-1:0]), .ctl_done(e_done), .ctl_result(e_words),
    .out_valid(e_valid), .out_drop(e_drop), .out_port(e_port), .out_queue(e_queue), .out_bypass(unused_e_bypass),
    .out_head(e_head), .out_rest(e_rest), .out_data(e_data), .mirror_valid(e_copies), .mirror_session(e_sessions),
    .mirror_port(e_copy_port), .mirror_queue(e_copy_queue), .mirror_data(e_copy_data)
  );
  between_t beside, pass, last;
  logic unused_y_room, unused_y_waits, unused_y_bypass;
  rtl_fifo #(.WIDTH(BETWEEN_BITS), .ADDR(FLIGHT)) e_beside (
    .clk(clk), .rst(rst), .in_valid(e_enters), .in_ready(unused_y_room), .in_data(got),
    .out_valid(unused_y_waits), .out_ready(y_pops), .out_data(beside)
  );
  rtl_results #(
    .OUT(E_OUT), .COPIES(E_COPIES), .COPY_TOTAL(E_COPY_TOTAL), .COPY_BITS(E_COPY_BITS), .FRONT(BETWEEN), .ADDR(FLIGHT)
  ) e_results (
    .clk(clk), .rst(rst), .sessions(sessions), .out_valid(e_valid), .out_drop(e_drop), .out_port(e_port),
    .out_queue(e_queue), .out_bypass(1'b0), .out_head(e_head), .out_rest(e_rest), .out_data(e_data),
    .mirror_valid(e_copies), .mirror_session(e_sessions), .mirror_port(e_copy_port), .mirror_queue(e_copy_queue),
    .mirror_data(e_copy_data), .item_valid(y_valid), .item_ready(y_ready), .item_ends(y_ends), .item_copy(y_copy),
    .item_drop(y_drop), .item_bypass(unused_y_bypass), .item_port(y_port), .item_queue(y_queue), .item_head(y_head),
    .item_rest(y_rest), .item_data(y_data), .item_front(y_front)
  );
  assign y_pops = y_valid && y_ready && y_ends;
  assign y_frees = y_valid && y_drop && beside.has_slot;

  logic pass_waits, out_ready, out_valid;
  rtl_fifo #(.WIDTH(BETWEEN_BITS), .ADDR(1)) bypass (
    .clk(clk), .rst(rst), .in_valid(dequeued && got.bypass), .in_ready(pass_room), .in_data(got),
    .out_valid(pass_waits), .out_ready(out_ready), .out_data(pass)
  );

  // The way out: the headers, then the packet from byte `y_rest` on. Its first bytes are at hand, others in the slot.
  assign passes = pass_waits;
  assign last = passes ? pass : beside;
  assign out_valid = passes || y_valid && !y_copy && !y_drop;
  assign y_ready = y_copy || y_drop || out_ready && !passes;
  logic [15:0] o_rest, o_head, o_known;
  logic [(E_OUT+BETWEEN)*8-1:0] o_headers, o_behind, o_front;
  always_comb begin
    o_rest = passes ? 16'd0 : y_rest;
    o_head = passes ? 16'd0 : y_head;
    // Bytes of the packet that are at hand.
    o_known = last.len > 16'(BETWEEN) ? 16'(BETWEEN) : last.len;
    o_headers = {y_data, {BETWEEN*8{1'b0}}} & ~({(E_OUT+BETWEEN)*8{1'b1}} >> (32'(o_head) * 8));
    o_behind = {last.front, {E_OUT*8{1'b0}}} << (32'(o_rest) * 8);
    o_front = o_headers | (o_behind >> (32'(o_head) * 8));
  end
  rtl_packet_out #(.FRONT(OUT_BEATS), .SLOT(SLOT), .BEAT(BEAT)) packet_out (
    .in_valid(out_valid), .in_ready(out_ready), .in_port(passes ? pass.port : y_port),
    .in_front({o_front, {(OUT_BEATS*64-E_OUT-BETWEEN)*8{1'b0}}}),
    .in_front_len(o_head + (o_known > o_rest ? o_known - o_rest : 16'd0)), .in_rest(last.rest),
    .in_len(o_head + (last.len > o_rest ? last.len - o_rest : 16'd0)),
    .in_has_slot(last.has_slot), .in_slot(last.slot), .free_valid(o_frees), .free_slot(free_slot), .*
  );
  logic [SLOT-1:0] free_slot;
  wire unused_bits = &{1'b0, whole, last, p_front};
  assign freed_now = (x_frees ? ((1<<SLOT))'(1) << x_slot : '0) | (y_frees ? ((1<<SLOT))'(1) << beside.slot : '0)
    | (o_frees ? ((1<<SLOT))'(1) << free_slot : '0);

  always_ff @(posedge clk) begin
    i_flight <= i_flight + (FLIGHT+1)'(enters) - (FLIGHT+1)'(x_pops);
    e_flight <= e_flight + (FLIGHT+1)'(e_enters) - (FLIGHT+1)'(y_pops);
    entered <= entered + 32'(enters);
    tail_drops <= tail_drops + 32'(queue_full);
    left <= left + 32'(m_axis_tvalid && m_axis_tready && m_axis_tlast);
    if (rst) {i_flight, e_flight, entered, tail_drops, left} <= '0;
  end
endmodule
