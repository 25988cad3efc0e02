// ZeroNIC's split unit (the paper's sections 3.1 and 3.2, figures 6 to 8): each segment's payload gets its place in
// registered memory before any transport has seen it, and its header goes up with what became of the payload.
//
// Arrivals and operations of the control stack enter one pipeline, one a clock, and count in the order in which they
// entered. An operation on a flow waits for the arrivals of that flow in front of it, and those behind wait for it;
// other flows go on, but behind the one that waits.
module split_unit #(
  parameter int FLOWS = 10000,
  parameter int ENTRIES = 1048576,  // of the backing store, for all flows
  parameter int COMMITTED = 128,    // entries that a flow is promised
  parameter int PEAK = 8192,        // most entries of a flow
  parameter int WAYS = 8,           // of a bucket of the flow table
  parameter int HEAD = 64,          // bits that travel with a header
  parameter int LINE = $clog2(FLOWS)
) (
  input  logic            clk,
  input  logic            rst,
  // Segments that arrive: four-tuple, sequence number, bytes of payload.
  input  logic            in_valid,
  output logic            in_ready,
  input  logic [95:0]     in_tuple,
  input  logic [31:0]     in_seq,
  input  logic [15:0]     in_len,
  input  logic [HEAD-1:0] in_head,
  // Operations: 1 OPEN (tuple, line), 2 BEGIN (tuple, seq), 3 POST (tuple, key, offset, len),
  // 4 ADVANCE (tuple, seq), 5 CLOSE (tuple).
  input  logic            op_valid,
  output logic            op_ready,
  input  logic [2:0]      op_kind,
  input  logic [95:0]     op_tuple,
  input  logic [LINE-1:0] op_line,
  input  logic [31:0]     op_key,
  input  logic [35:0]     op_offset,
  input  logic [26:0]     op_len,
  input  logic [31:0]     op_seq,
  output logic            op_done,   // in the order of the operations
  output logic            op_ok,
  output logic [31:0]     op_moved,  // bytes that ADVANCE moved the cursor by
  output logic [31:0]     free_blocks,
  output logic            place_valid,
  input  logic            place_ready,
  output logic [LINE-1:0] place_line,
  output logic [31:0]     place_key,
  output logic [35:0]     place_offset,
  output logic [15:0]     place_at,
  output logic [15:0]     place_len,
  output logic            place_last,
  output logic            head_valid,
  input  logic            head_ready,
  output logic [LINE-1:0] head_line,
  output logic [2:0]      head_case,  // 0 placed (figure 8: a, c, d), 1 old (b), 2 no segment (e), 3 no flow
  output logic [15:0]     head_skip,  // bytes that are old
  output logic [15:0]     head_len,   // bytes that were placed behind them; the others have no segment
  output logic [HEAD-1:0] head_data
);
  localparam int BLOCK = $clog2(ENTRIES / 8);
  // Buckets of one of two memories: in all, more places than flows by 60 %.
  localparam int ADDR = $clog2(FLOWS * 8 / (5 * 2 * WAYS) + 1);
  localparam logic [2:0] OPEN = 1, CLOSE = 5, PLACED = 0, OLD = 1, NOWHERE = 2, NO_FLOW = 3;

  // What travels: an arrival (kind 0) or an operation.
  typedef struct packed {
    logic [2:0]      kind;
    logic [95:0]     tuple;
    logic [LINE-1:0] line;
    logic [31:0]     seq;
    logic [31:0]     key;
    logic [35:0]     offset;
    logic [26:0]     len;
    logic [HEAD-1:0] head;
  } item_t;
  typedef struct packed {
    logic [31:0]     seq;
    logic [15:0]     len;
    logic            hit;
    logic [LINE-1:0] line;
    logic [HEAD-1:0] head;
  } arrival_t;
  typedef struct packed {
    logic [2:0]       verdict;
    logic [LINE-1:0]  line;
    logic [31:0]      pos;
    logic [15:0]      skip;
    logic [15:0]      len;
    logic [BLOCK-1:0] first_block;
    logic [2:0]       first_at;
    logic [31:0]      first_key;
    logic [HEAD-1:0]  head;
  } aimed_t;

  // Stage 0: what entered. Where both wait, they take turns. Behind an operation that changes the flow table,
  // nothing enters until the table is changed.
  item_t i0, i1, i2;
  logic v0, v1, v2, v3, v4, v5, ready0, ready1, ready2, ready3, ready4, ready5;
  logic was_op, takes_op, fence;
  assign fence = v0 && (i0.kind == OPEN || i0.kind == CLOSE) || v1 && (i1.kind == OPEN || i1.kind == CLOSE)
    || v2 && (i2.kind == OPEN || i2.kind == CLOSE);
  assign takes_op = op_valid && !(in_valid && was_op);
  assign op_ready = ready0 && !fence && takes_op;
  assign in_ready = ready0 && !fence && !takes_op;
  assign ready0 = !v0 || ready1;
  always_ff @(posedge clk) begin
    if (ready0) begin
      v0 <= op_ready && op_valid || in_ready && in_valid;
      if (!fence && (op_valid || in_valid)) was_op <= takes_op;
      if (takes_op) i0 <= {op_kind, op_tuple, op_line, op_seq, op_key, op_offset, op_len, {HEAD{1'b0}}};
      else i0 <= {3'd0, in_tuple, {LINE{1'b0}}, in_seq, 68'd0, 11'd0, in_len, in_head};
    end
    if (rst) {v0, was_op} <= '0;
  end

  // Stage 1: the flow table is read.
  logic hit, room, start, table_write;
  logic [LINE-1:0] line;
  logic [15:0] place;
  assign ready1 = !v1 || ready2;
  always_ff @(posedge clk) begin
    if (ready1) {v1, i1} <= {v0, i0};
    if (rst) v1 <= 1'b0;
  end

  // Stage 2: whether the flow was found. Here an operation begins.
  logic hit2, room2;
  logic [LINE-1:0] line2;
  logic [15:0] place2;
  split_table #(.LINE(LINE), .WAYS(WAYS), .ADDR(ADDR)) flow_table (
    .clk(clk), .read(ready1), .tuple(i0.tuple), .tuple_q(i1.tuple),
    .hit(hit), .line(line), .room(room), .place(place),
    .write(table_write), .at(place2), .at_tuple(i2.tuple), .at_valid(i2.kind == OPEN), .at_line(i2.line)
  );
  always_ff @(posedge clk) begin
    if (ready2) begin
      {v2, i2} <= {v1, i1};
      {hit2, room2, place2} <= {hit, room, place};
      line2 <= i1.kind == OPEN ? i1.line : line;
    end
    if (rst) v2 <= 1'b0;
  end

  arrival_t a3, a4;
  wire unused_bits = &{1'b0, a4.seq};
  aimed_t a5;
  logic busy, list_done, list_ok, refused, refuses, can_start, passes, in_flight;
  logic [LINE-1:0] busy_line, walk_line;
  logic walk_holds;
  // Of this flow, something is on its way in front.
  assign in_flight = v3 && a3.hit && a3.line == line2 || v4 && a4.hit && a4.line == line2
    || v5 && a5.line == line2 || walk_holds && walk_line == line2;
  // An operation on a flow that is not there, or that is there already, or for which there is no room.
  assign refuses = i2.kind == OPEN ? hit2 || !room2 : !hit2;
  assign can_start = v2 && i2.kind != 0 && !busy;
  assign start = can_start && !refuses && !in_flight;
  assign table_write = start && (i2.kind == OPEN || i2.kind == CLOSE);
  assign passes = v2 && i2.kind == 0 && !(hit2 && busy && busy_line == line2);
  assign ready2 = !v2 || start || can_start && refuses || passes && ready3;
  always_ff @(posedge clk) refused <= can_start && refuses && !rst;

  // Stage 3: the flow's state is read.
  logic [31:0] cursor, moved;
  logic [40:0] bytes;
  logic [26:0] done;
  logic [BLOCK-1:0] first_block, fetch_block, fetched_next, walk_block;
  logic [2:0] first_at;
  logic [31:0] first_key;
  logic fetch, walk_fetch, walk_fetches;
  logic [511:0] fetched;
  split_lists #(
    .FLOWS(FLOWS), .ENTRIES(ENTRIES), .COMMITTED(COMMITTED), .PEAK(PEAK), .LINE(LINE), .BLOCK(BLOCK)
  ) lists (
    .clk(clk), .rst(rst),
    .read(ready3), .read_line(line2), .cursor(cursor), .bytes(bytes), .skip(done),
    .first_block(first_block), .first_at(first_at), .first_key(first_key),
    .fetch(fetch), .fetch_block(fetch_block), .fetched(fetched), .fetched_next(fetched_next),
    .start(start), .kind(i2.kind), .line(line2), .key(i2.key), .offset(i2.offset), .len(i2.len), .to(i2.seq),
    .busy(busy), .busy_line(busy_line), .done(list_done), .ok(list_ok), .moved(moved),
    .available(free_blocks)
  );
  assign op_done = list_done || refused;
  assign op_ok = list_done && list_ok;
  assign op_moved = list_done ? moved : 32'd0;

  assign ready3 = !v3 || ready4;
  always_ff @(posedge clk) begin
    if (ready3) begin
      v3 <= passes;
      a3 <= {i2.seq, i2.len[15:0], hit2, line2, i2.head};
    end
    if (rst) v3 <= 1'b0;
  end

  // Stage 4: the distance from the cursor.
  typedef struct packed {
    logic [31:0]      at;
    logic [40:0]      bytes;
    logic [26:0]      done;
    logic [BLOCK-1:0] first_block;
    logic [2:0]       first_at;
    logic [31:0]      first_key;
  } distance_t;
  distance_t d4;
  assign ready4 = !v4 || ready5 && !walk_fetches;
  always_ff @(posedge clk) begin
    if (ready4) begin
      {v4, a4} <= {v3, a3};
      d4 <= {a3.seq - cursor, bytes, done, first_block, first_at, first_key};
    end
    if (rst) v4 <= 1'b0;
  end

  // Stage 5: figure 8. The first block of the list is read meanwhile.
  aimed_t aimed;
  logic [31:0] old, from;
  logic [40:0] space;
  logic [15:0] fresh;
  always_comb begin
    old = d4.at[31] ? 32'd0 - d4.at : 32'd0;
    from = d4.at[31] ? 32'd0 : d4.at;
    space = d4.bytes > 41'(from) ? d4.bytes - 41'(from) : 41'd0;
    fresh = a4.len - old[15:0];
    aimed = {PLACED, a4.line, from + 32'(d4.done), old[15:0], fresh, d4.first_block, d4.first_at, d4.first_key,
      a4.head};
    if (space < 41'(fresh)) aimed.len = space[15:0];
    if (!a4.hit) aimed.verdict = NO_FLOW;
    else if (old >= 32'(a4.len)) aimed.verdict = OLD;
    else if (space == 0) aimed.verdict = NOWHERE;
    if (aimed.verdict != PLACED) {aimed.skip, aimed.len} = '0;
  end
  logic loaded;  // what was fetched last is this arrival's
  logic walk_ready, moves, reloads;
  assign moves = ready4 && v4;
  assign reloads = v5 && !loaded && !walk_fetches;
  assign fetch = walk_fetch || moves || reloads;
  assign fetch_block = walk_fetch ? walk_block : moves ? d4.first_block : a5.first_block;
  assign ready5 = !v5 || walk_ready && loaded;
  always_ff @(posedge clk) begin
    if (walk_fetches) loaded <= 1'b0;
    if (reloads) loaded <= 1'b1;
    if (ready4 && ready5) begin
      v5 <= v4;
      a5 <= aimed;
      loaded <= 1'b1;
    end else if (ready5) v5 <= 1'b0;
    if (rst) v5 <= 1'b0;
  end

  split_walk #(.BLOCK(BLOCK), .LINE(LINE), .HEAD(HEAD)) walk (
    .clk(clk), .rst(rst), .in_valid(v5 && loaded), .in_ready(walk_ready),
    .in_line(a5.line), .in_case(a5.verdict), .in_pos(a5.pos), .in_skip(a5.skip), .in_len(a5.len),
    .in_at(a5.first_at), .in_key(a5.first_key), .in_head(a5.head),
    .fetch(walk_fetch), .fetch_block(walk_block), .fetches(walk_fetches),
    .fetched(fetched), .fetched_next(fetched_next),
    .place_valid(place_valid), .place_ready(place_ready), .place_line(place_line), .place_key(place_key),
    .place_offset(place_offset), .place_at(place_at), .place_len(place_len), .place_last(place_last),
    .head_valid(head_valid), .head_ready(head_ready), .head_line(head_line), .head_case(head_case),
    .head_skip(head_skip), .head_len(head_len), .head_data(head_data), .line(walk_line), .holds(walk_holds)
  );
endmodule
