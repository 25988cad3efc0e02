// The walk of a flow's list: from a payload's place in the stream to parts of memory. One part leaves a clock. An
// arrival whose payload ends in the first part that it meets takes one clock, each block that is passed two more.
module split_walk #(
  parameter int BLOCK = 17,
  parameter int LINE = 14,
  parameter int HEAD = 64
) (
  input  logic             clk,
  input  logic             rst,
  // An arrival, with the block that its flow's list begins in.
  input  logic             in_valid,
  output logic             in_ready,
  input  logic [LINE-1:0]  in_line,
  input  logic [2:0]       in_case,
  input  logic [31:0]      in_pos,    // of its first new byte, counted from the first part's first byte
  input  logic [15:0]      in_skip,   // bytes in front of that one
  input  logic [15:0]      in_len,    // new bytes that have a place
  input  logic [2:0]       in_at,     // the first entry, in its block
  input  logic [31:0]      in_key,
  input  logic [HEAD-1:0]  in_head,
  // The block memory: what was fetched last.
  output logic             fetch,
  output logic [BLOCK-1:0] fetch_block,
  output logic             fetches,   // what is fetched now is the walk's
  input  logic [511:0]     fetched,
  input  logic [BLOCK-1:0] fetched_next,
  // Parts of payloads, and where they go.
  output logic             place_valid,
  input  logic             place_ready,
  output logic [LINE-1:0]  place_line,
  output logic [31:0]      place_key,
  output logic [35:0]      place_offset,
  output logic [15:0]      place_at,  // the part's first byte in the payload
  output logic [15:0]      place_len,
  output logic             place_last,
  // Headers, one for each arrival, in order.
  output logic             head_valid,
  input  logic             head_ready,
  output logic [LINE-1:0]  head_line,
  output logic [2:0]       head_case,
  output logic [15:0]      head_skip,
  output logic [15:0]      head_len,
  output logic [HEAD-1:0]  head_data,
  output logic [LINE-1:0]  line,      // of the arrival that is here
  output logic             holds
);
  localparam logic [2:0] PLACED = 0;

  logic valid, waits;
  logic [2:0] kind;
  logic [31:0] pos;
  logic [15:0] skip, len, at, left;
  logic [HEAD-1:0] head;
  logic [7:0] part, part_q;
  logic [239:0] ends, ends_q;
  logic [287:0] offsets, offsets_q;
  logic [255:0] keys, keys_q;
  logic [BLOCK-1:0] next;
  // A further block begins with its first entry, under the region that was last.
  split_sums sums (
    .block(fetched), .first(waits ? 3'd0 : in_at), .key(waits ? keys_q[255:224] : in_key),
    .part(part), .ends(ends), .offsets(offsets), .keys(keys)
  );

  // The part that holds byte `pos`: the first that ends behind it; its region, where that byte lies there, and how many
  // bytes the part has from there on. All that is worked out for each part at once, before one is chosen.
  logic found;
  logic [29:0] reach;
  logic [31:0] room, key;
  logic [35:0] offset;
  logic [32:0] rooms [0:7];
  integer i;
  always_comb begin
    {found, reach, room, key, offset} = '0;
    for (i = 7; i >= 0; i = i - 1) begin
      rooms[i] = 33'(ends_q[i*30 +: 30]) - 33'(pos);
      if (part_q[i] && !rooms[i][32] && rooms[i] != 0) begin
        found = 1'b1;
        key = keys_q[i*32 +: 32];
        offset = offsets_q[i*36 +: 36] + 36'(pos) - (i == 0 ? 36'd0 : 36'(ends_q[(i == 0 ? 0 : i - 1)*30 +: 30]));
        reach = ends_q[i*30 +: 30];
        room = rooms[i][31:0];
      end
    end
  end
  logic [15:0] count;
  logic ends_here, place_free, head_free, places, finishes;
  assign ends_here = room >= 32'(left);
  assign count = ends_here ? left : room[15:0];
  assign place_free = !place_valid || place_ready;
  assign head_free = !head_valid || head_ready;
  assign places = valid && !waits && kind == PLACED && found && place_free && (!ends_here || head_free);
  assign finishes = places && ends_here || valid && kind != PLACED && head_free;
  assign fetches = valid && !waits && kind == PLACED && !found;
  assign fetch = fetches;
  assign fetch_block = next;
  assign in_ready = !valid || finishes;
  assign holds = valid;

  always_ff @(posedge clk) begin
    if (place_ready) place_valid <= 1'b0;
    if (head_ready) head_valid <= 1'b0;
    if (places) begin
      place_valid <= 1'b1;
      place_line <= line;
      place_key <= key;
      place_offset <= offset;
      {place_at, place_len, place_last} <= {at, count, ends_here};
      // Where the payload goes on, it does so behind this part's end.
      pos <= 32'(reach);
      at <= at + room[15:0];
      left <= left - room[15:0];
    end
    if (finishes) begin
      head_valid <= 1'b1;
      {head_line, head_case, head_skip, head_len, head_data} <= {line, kind, skip, len, head};
      valid <= 1'b0;
    end
    if (fetches) begin
      waits <= 1'b1;
      pos <= pos - 32'(ends_q[239:210]);
    end
    if (waits) waits <= 1'b0;
    if (waits || in_ready) begin
      {part_q, ends_q, offsets_q, keys_q} <= {part, ends, offsets, keys};
      next <= fetched_next;
    end
    if (in_ready && in_valid) begin
      valid <= 1'b1;
      {line, kind, pos, skip, len, head} <= {in_line, in_case, in_pos, in_skip, in_len, in_head};
      {at, left} <= {in_skip, in_len};
    end
    if (rst) {valid, waits, place_valid, head_valid} <= '0;
  end
endmodule
