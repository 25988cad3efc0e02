// The ones' complement sum of 16-bit words (RFC 1071), CLOCKS later. With three clocks: groups of at most six words,
// the groups' sums, the end-around carries. With none, all of it at once.
module rtl_sum #(
  parameter int WORDS = 10,
  parameter int CLOCKS = 3         // 0 or 3
) (
  input  logic                clk,
  input  logic [WORDS*16-1:0] words,
  output logic [15:0]         sum
);
  localparam int GROUPS = (WORDS + 5) / 6;
  // Bits of a sum of all words.
  localparam int BITS = 16 + $clog2(WORDS + 1);

  logic [GROUPS*BITS-1:0] groups, groups_q;
  logic [BITS-1:0] total, total_q;
  logic [15:0] folded;
  always_comb begin
    integer n;
    groups = '0;
    for (n = 0; n < WORDS; n = n + 1)
      groups[n/6*BITS +: BITS] = groups[n/6*BITS +: BITS] + BITS'(words[n*16 +: 16]);
  end
  always_comb begin
    integer n;
    total = '0;
    for (n = 0; n < GROUPS; n = n + 1) total = total + groups_q[n*BITS +: BITS];
  end
  // The carries come in at the lower end. One that this makes comes in again, and makes no other: so the sum with it is
  // worked out beside the one without.
  logic [16:0] once;
  logic [15:0] again;
  assign once = {1'b0, total_q[15:0]} + 17'(total_q[BITS-1:16]);
  assign again = total_q[15:0] + 16'(total_q[BITS-1:16]) + 16'd1;
  assign folded = once[16] ? again : once[15:0];
  generate
    if (CLOCKS == 0) begin : at_once
      assign {groups_q, total_q, sum} = {groups, total, folded};
      wire unused_clock = &{1'b0, clk};
    end else begin : in_three
      always_ff @(posedge clk) {groups_q, total_q, sum} <= {groups, total, folded};
    end
  endgenerate
endmodule
