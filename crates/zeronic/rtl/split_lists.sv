// The flows' cursors and lists of memory segments, in one backing store of blocks of eight entries. A flow is promised
// some blocks, and may have more while others do not need them (the paper's section 3.2: committed and peak entries).
// Arrivals read by ports of their own; operations of the control stack change one flow at a time.
module split_lists #(
  parameter int FLOWS = 10000,
  parameter int ENTRIES = 1048576,  // of the backing store
  parameter int COMMITTED = 128,    // entries that a flow is promised
  parameter int PEAK = 8192,        // most entries of a flow
  parameter int LINE = $clog2(FLOWS),
  parameter int BLOCK = $clog2(ENTRIES / 8)
) (
  input  logic             clk,
  input  logic             rst,
  // Arrivals: a flow's state, from the next clock until another one is read.
  input  logic             read,
  input  logic [LINE-1:0]  read_line,
  output logic [31:0]      cursor,
  output logic [40:0]      bytes,
  output logic [26:0]      skip,
  output logic [BLOCK-1:0] first_block,
  output logic [2:0]       first_at,
  output logic [31:0]      first_key,
  // The same of a block, and which one follows it.
  input  logic             fetch,
  input  logic [BLOCK-1:0] fetch_block,
  output logic [511:0]     fetched,
  output logic [BLOCK-1:0] fetched_next,
  // Operations: one at a time.
  input  logic             start,   // only while not busy
  input  logic [2:0]       kind,
  input  logic [LINE-1:0]  line,
  input  logic [31:0]      key,
  input  logic [35:0]      offset,
  input  logic [26:0]      len,
  input  logic [31:0]      to,
  output logic             busy,
  output logic [LINE-1:0]  busy_line,
  output logic             done,    // with the result of the operation, for one clock
  output logic             ok,
  output logic [31:0]      moved,   // bytes that ADVANCE moved the cursor by
  output logic [31:0]      available // blocks that no flow has
);
  localparam int BLOCKS = ENTRIES / 8;
  // One block more than the entries need, as a list may begin anywhere in its first block.
  localparam logic [15:0] PROMISE = 16'((COMMITTED + 7) / 8 + 1);
  localparam logic [2:0] OPEN = 1, BEGIN = 2, POST = 3, ADVANCE = 4;  // and 5, CLOSE

  typedef struct packed {
    logic             open;
    logic [31:0]      cursor;       // the stream is in order up to here, says the transport
    logic [40:0]      bytes;        // of all parts, those done left out
    logic [26:0]      skip;         // bytes of the first part that are done
    logic [13:0]      entries;
    logic [BLOCK-1:0] first_block;  // block and place of the first entry
    logic [2:0]       first_at;
    logic [31:0]      first_key;    // the region of the first part, and of the last
    logic [31:0]      last_key;
    logic [BLOCK-1:0] last_block;   // block of the last entry, and the place behind it
    logic [3:0]       last_at;
    logic [15:0]      held;         // blocks that the flow has, and those it is promised
    logic [15:0]      promise;
  } state_t;

  // Memories: port A for arrivals, port B for operations.
  logic [217+2*BLOCK:0] states [0:FLOWS-1];
  logic [BLOCK-1:0] next [0:BLOCKS-1];
`ifndef SYNTHESIS
  integer n;
  initial for (n = 0; n < FLOWS; n = n + 1) states[n] = '0;
`endif

  state_t a, b, s, put;
  logic put_state, put_next;
  logic [7:0] put_entry;
  logic [63:0] entry;
  logic [BLOCK-1:0] block_address, next_address, next_value, b_next;
  logic [511:0] b_fetched;
  logic [LINE-1:0] state_address;
  always_ff @(posedge clk) begin
    if (read) a <= states[read_line];
    if (put_state) states[state_address] <= put;
    else b <= states[state_address];
    if (fetch) fetched_next <= next[fetch_block];
    if (put_next) next[next_address] <= next_value;
    else b_next <= next[next_address];
  end
  genvar g;
  generate
    for (g = 0; g < 8; g = g + 1) begin : columns
      logic [63:0] entries [0:BLOCKS-1];
      logic [63:0] a_entry, b_entry;
      always_ff @(posedge clk) begin
        if (fetch) a_entry <= entries[fetch_block];
        if (put_entry[g]) entries[block_address] <= entry;
        else b_entry <= entries[block_address];
      end
      assign fetched[g*64 +: 64] = a_entry;
      assign b_fetched[g*64 +: 64] = b_entry;
    end
  endgenerate
  assign {cursor, bytes, skip} = {a.cursor, a.bytes, a.skip};
  assign {first_block, first_at, first_key} = {a.first_block, a.first_at, a.first_key};
  // Arrivals need no more of a flow's state.
  wire unused_bits = &{1'b0, a, unused_offsets};

  // Free blocks: those that came back, as a list through `next`, and those from `fresh` on, which were never used.
  logic [BLOCK-1:0] free;
  logic [31:0] fresh, promised;
  logic none_came_back;
  assign none_came_back = available == BLOCKS - fresh;

  typedef enum logic [2:0] {IDLE, DECIDE, REGION, PART, LOAD, SUM, RETIRE} step_t;
  step_t step;
  logic [2:0] kind_q;
  logic [LINE-1:0] line_q;
  logic [31:0] key_q, to_q, left;   // left: bytes to retire, from the first entry of the block on
  logic [35:0] offset_q;
  logic [26:0] len_q;
  logic [BLOCK-1:0] taken;
  assign busy = step != IDLE;
  assign busy_line = line_q;

  // POST
  logic empty, new_region, takes, fits;
  logic [31:0] own, needed, here;
  assign empty = b.entries == 0;
  assign new_region = empty || key_q != b.last_key;
  assign needed = 32'd1 + 32'(new_region);
  assign here = empty ? 32'd0 : 32'd8 - 32'(b.last_at);
  assign takes = needed > here;
  assign own = b.promise > b.held ? 32'(b.promise) - 32'(b.held) : 32'd0;
  assign fits = b.open && len_q != 0 && 37'(offset_q) + 37'(len_q) <= 37'h1000000000
    && 32'(b.entries) + needed <= 32'(PEAK) && own + available - promised >= 32'(takes);

  // An appended entry goes behind the last one, or to the front of the block that was taken.
  logic at_front;
  logic [BLOCK-1:0] to_block;
  logic [3:0] to_at;
  assign at_front = s.entries == 0 || s.last_at == 8;
  assign to_block = at_front ? taken : s.last_block;
  assign to_at = at_front ? 4'd0 : s.last_at;

  // ADVANCE: how far, and which entries of the first block are done.
  logic [31:0] wanted, most, count;
  assign wanted = to_q - b.cursor;
  assign count = wanted < most ? wanted : most;
  assign most = b.bytes > 41'h7fffffff ? 32'h7fffffff : b.bytes[31:0];
  logic [7:0] part, part_q;
  logic [239:0] ends, ends_q;
  logic [255:0] keys, keys_q;
  logic [287:0] unused_offsets;
  split_sums sums (
    .block(b_fetched), .first(s.first_at), .key(s.first_key),
    .part(part), .ends(ends), .offsets(unused_offsets), .keys(keys)
  );
  logic stops;
  logic [2:0] stop;
  logic [29:0] below;
  logic [31:0] stop_key;
  logic [3:0] valid_end;  // behind the last entry of this block that counts
  integer i;
  always_comb begin
    valid_end = 32'(s.entries) >= 32'd8 - 32'(s.first_at) ? 4'd8 : 4'(s.first_at) + s.entries[3:0];
    {stops, stop, below, stop_key} = '0;
    for (i = 7; i >= 0; i = i - 1)
      if (part_q[i] && i < 32'(valid_end) && 32'(ends_q[i*30 +: 30]) > left) begin
        stops = 1'b1;
        stop = 3'(i);
        below = i == 0 ? 30'd0 : ends_q[(i == 0 ? 0 : i - 1)*30 +: 30];
        stop_key = keys_q[i*32 +: 32];
      end
  end
  logic ends_here;
  assign ends_here = !stops && valid_end != 8 || !stops && 32'(s.entries) == 32'd8 - 32'(s.first_at);

  // What this step writes.
  always_comb begin
    put = step == DECIDE ? b : s;
    {put_state, put_next, put_entry, entry} = '0;
    state_address = busy ? line_q : line;
    block_address = step == REGION || step == PART ? to_block : s.first_block;
    next_address = busy && step != DECIDE ? s.first_block : free;
    next_value = free;
    case (step)
      DECIDE: case (kind_q)
        OPEN: begin
          put = '0;
          put.open = 1'b1;
          put.promise = 32'(PROMISE) < available - promised ? PROMISE : 16'(available - promised);
          put_state = 1'b1;
        end
        BEGIN: begin
          put.cursor = to_q;
          put_state = b.open;
        end
        POST: begin
          put_next = fits && takes && !empty;
          next_address = b.last_block;
          next_value = none_came_back ? BLOCK'(fresh) : free;
        end
        ADVANCE: ;
        default: begin
          put = '0;
          put_state = 1'b1;
          // All blocks come back at once.
          put_next = !empty;
          next_address = b.last_block;
        end
      endcase
      REGION, PART: begin
        entry = step == REGION ? {1'b1, 31'd0, key_q} : {1'b0, offset_q, len_q};
        put_entry[to_at[2:0]] = 1'b1;
        put.entries = s.entries + 1;
        put.last_block = to_block;
        put.last_at = to_at + 1;
        put.held = at_front ? s.held + 1 : s.held;
        if (s.entries == 0) begin
          put.first_block = to_block;
          put.first_at = 3'd0;
        end
        put.last_key = key_q;
        if (step == PART) put.bytes = s.bytes + 41'(len_q);
        put_state = step == PART;
      end
      RETIRE: begin
        put_next = !stops;
        if (stops) begin
          put.first_at = stop;
          put.entries = s.entries - (14'(stop) - 14'(s.first_at));
          put.first_key = stop_key;
          put.skip = 27'(left - 32'(below));
        end else begin
          put.held = s.held - 1;
          put.first_block = b_next;
          put.first_at = 3'd0;
          put.first_key = keys_q[255:224];
          put.entries = ends_here ? 14'd0 : s.entries - (14'd8 - 14'(s.first_at));
          if (ends_here) put.skip = '0;
        end
        put_state = stops || ends_here;
      end
      default: ;
    endcase
  end

  // A block is taken or comes back: of the flow's own, while it has fewer than it is promised.
  logic takes_now, gives_now;
  assign takes_now = step == DECIDE && kind_q == POST && fits && takes;
  assign gives_now = step == RETIRE && !stops;
  logic gives_all;
  assign gives_all = step == DECIDE && kind_q > ADVANCE && !empty;
  always_ff @(posedge clk) begin
    done <= 1'b0;
    case (step)
      IDLE: if (start) begin
        {kind_q, line_q, key_q, offset_q, len_q, to_q} <= {kind, line, key, offset, len, to};
        step <= DECIDE;
      end
      DECIDE: begin
        s <= b;
        moved <= '0;
        ok <= kind_q == POST ? fits : kind_q == OPEN || b.open;
        taken <= none_came_back ? BLOCK'(fresh) : free;
        step <= IDLE;
        if (kind_q == POST && fits) step <= new_region ? REGION : PART;
        else if (kind_q == ADVANCE && b.open && !wanted[31] && wanted != 0 && most != 0) begin
          moved <= wanted < most ? wanted : most;
          s.cursor <= b.cursor + count;
          s.bytes <= b.bytes - 41'(count);
          left <= count + 32'(b.skip);
          step <= LOAD;
        end else done <= 1'b1;
      end
      REGION: begin
        s <= put;
        step <= PART;
      end
      PART: begin
        done <= 1'b1;
        step <= IDLE;
      end
      LOAD: step <= SUM;
      SUM: begin
        {part_q, ends_q, keys_q} <= {part, ends, keys};
        step <= RETIRE;
      end
      RETIRE: begin
        s <= put;
        left <= left - 32'(ends_q[239:210]);
        done <= put_state;
        step <= put_state ? IDLE : LOAD;
      end
      default: step <= IDLE;
    endcase
    if (takes_now) begin
      available <= available - 1;
      promised <= promised - 32'(b.held < b.promise);
      if (none_came_back) fresh <= fresh + 1;
      else free <= b_next;
    end
    if (gives_now) begin
      available <= available + 1;
      promised <= promised + 32'(put.held < s.promise);
      free <= s.first_block;
    end
    if (step == DECIDE && kind_q == OPEN) promised <= promised + 32'(put.promise);
    if (step == DECIDE && kind_q > ADVANCE) begin
      promised <= promised - own;
      available <= available + 32'(b.held);
      if (gives_all) free <= b.first_block;
    end
    if (rst) begin
      step <= IDLE;
      {available, fresh, promised} <= {32'(BLOCKS), 64'd0};
      free <= '0;
    end
  end
endmodule
