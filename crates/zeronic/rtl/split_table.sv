// The flow table: four-tuple to line. Two memories, each read at a hash of its own; a word there is a bucket of WAYS
// entries. A flow takes a free place of the emptier of its two buckets, so nothing moves when one is added.
module split_table #(
  parameter int LINE = 14,
  parameter int WAYS = 8,
  parameter int ADDR = 10
) (
  input  logic            clk,
  input  logic            read,      // looks up this tuple; the answer stands from the next clock until another read
  input  logic [95:0]     tuple,
  input  logic [95:0]     tuple_q,   // the tuple of the last read
  output logic            hit,
  output logic [LINE-1:0] line,
  output logic            room,      // one of both buckets has a free place
  output logic [15:0]     place,     // of the entry that was found, or of the free place
  input  logic            write,
  input  logic [15:0]     at,        // a place that an answer named, for this tuple
  input  logic [95:0]     at_tuple,
  input  logic            at_valid,
  input  logic [LINE-1:0] at_line
);
  localparam int ENTRY = 97 + LINE;

  logic [2*WAYS-1:0] match, free;
  logic [LINE*2*WAYS-1:0] lines;
  genvar h, w;
  generate
    for (h = 0; h < 2; h = h + 1) begin : halves
      localparam logic [31:0] POLYNOMIAL = h == 0 ? 32'hedb88320 : 32'h82f63b78;
      logic [31:0] hash, hash_at;
      rtl_crc #(.KEY(96), .POLYNOMIAL(POLYNOMIAL)) of_read (.key(tuple), .crc(hash));
      rtl_crc #(.KEY(96), .POLYNOMIAL(POLYNOMIAL)) of_write (.key(at_tuple), .crc(hash_at));
      for (w = 0; w < WAYS; w = w + 1) begin : ways
        // Block RAM begins as zero: no entry is valid.
        logic [ENTRY-1:0] mem [0:(1<<ADDR)-1];
        logic [ENTRY-1:0] q;
`ifndef SYNTHESIS
        integer n;
        initial for (n = 0; n < (1 << ADDR); n = n + 1) mem[n] = '0;
`endif
        always_ff @(posedge clk) begin
          if (write && at == 16'(h * WAYS + w)) mem[hash_at[ADDR-1:0]] <= {at_line, at_tuple, at_valid};
          if (read) q <= mem[hash[ADDR-1:0]];
        end
        assign match[h*WAYS+w] = q[0] && q[96:1] == tuple_q;
        assign free[h*WAYS+w] = !q[0];
        assign lines[(h*WAYS+w)*LINE +: LINE] = q[97 +: LINE];
      end
      wire unused_bits = &{1'b0, hash, hash_at};
    end
  endgenerate

  assign hit = |match;
  assign room = |free;

  // The emptier bucket has more free places; the first one where both have as many.
  logic second;
  integer i;
  logic [7:0] free_0, free_1;
  always_comb begin
    free_0 = '0;
    free_1 = '0;
    line = '0;
    for (i = 0; i < WAYS; i = i + 1) begin
      free_0 = free_0 + 8'(free[i]);
      free_1 = free_1 + 8'(free[WAYS+i]);
    end
    for (i = 0; i < 2 * WAYS; i = i + 1) if (match[i]) line = line | lines[i*LINE +: LINE];
    second = free_1 > free_0;
    place = '0;
    for (i = 2 * WAYS - 1; i >= 0; i = i - 1)
      if (hit ? match[i] : (free[i] && (i >= WAYS) == second)) place = 16'(i);
  end
endmodule
