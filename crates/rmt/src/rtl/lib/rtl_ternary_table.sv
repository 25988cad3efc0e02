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

  logic [DATA-1:0] chosen;
  integer i;
  always_comb begin
    chosen = miss;
    for (i = ENTRIES - 1; i >= 0; i = i - 1)
      if (match[i]) chosen = found[i*DATA +: DATA];
  end
  always_ff @(posedge clk) begin
    hit <= |match;
    data <= chosen;
  end
endmodule
