// A small table whose keys have masks, or one of them a range: all entries are compared at once, the first match wins.
// The result stands two clocks after the key. A write is seen by the key of the next clock.
module rtl_ternary_table #(
  parameter int KEY = 32,
  parameter int DATA = 8,
  parameter int ENTRIES = 16,
  parameter int INDEX = 4,
  parameter int RANGE = 0,     // bits of the key that is a range, and where they begin
  parameter int RANGE_AT = 0
) (
  input  logic            clk,
  input  logic [KEY-1:0]  key,
  input  logic [DATA-1:0] miss,
  output logic            hit,
  output logic [DATA-1:0] data,
  input  logic            write,
  input  logic [INDEX-1:0] slot,
  input  logic [2*KEY+DATA:0] word  // data, mask (of a range: its end), value (its begin), valid
);
  localparam logic [KEY-1:0] RANGED = ((KEY'(1) << RANGE) - KEY'(1)) << RANGE_AT;

  logic [ENTRIES-1:0] match;
  logic [DATA*ENTRIES-1:0] found;
  genvar e;
  generate
    for (e = 0; e < ENTRIES; e = e + 1) begin : entries
      logic [2*KEY+DATA:0] entry;
      initial entry = '0;
      wire [KEY-1:0] value = entry[KEY:1];
      wire [KEY-1:0] mask = entry[2*KEY:KEY+1];
      wire inside_range;
      if (RANGE > 0) begin : ranged
        assign inside_range = key[RANGE_AT +: RANGE] >= value[RANGE_AT +: RANGE]
          && key[RANGE_AT +: RANGE] <= mask[RANGE_AT +: RANGE];
      end else begin : masked
        assign inside_range = 1'b1;
      end
      always_ff @(posedge clk) begin
        if (write && slot == e) entry <= word;
        match[e] <= entry[0] && inside_range && ((key ^ value) & mask & ~RANGED) == '0;
      end
      assign found[e*DATA +: DATA] = entry[2*KEY+DATA:2*KEY+1];
    end
  endgenerate

  // Of two neighbours the first that matches, then of two pairs, and so on.
  localparam int LEAVES = 1 << INDEX;
  logic [LEAVES-1:0] any;
  logic [DATA*LEAVES-1:0] best;
  always_comb begin
    integer step, i;
    any = LEAVES'(match);
    best = (DATA*LEAVES)'(found);
    for (step = 1; step < LEAVES; step = step * 2)
      for (i = 0; i < LEAVES; i = i + 2 * step) begin
        if (!any[i]) best[i*DATA +: DATA] = best[(i+step)*DATA +: DATA];
        any[i] = any[i] | any[i+step];
      end
  end
  always_ff @(posedge clk) begin
    hit <= any[0];
    data <= any[0] ? best[DATA-1:0] : miss;
  end
  wire unused_bits = &{1'b0, any, best};
endmodule
