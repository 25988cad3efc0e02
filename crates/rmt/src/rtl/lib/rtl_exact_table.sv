// An exact-match table: WAYS memories, each read at another hash of the key (cuckoo hashing: whoever writes entries
// finds a place for each). The result stands two clocks after the key. A write is seen by the key of the next clock.
module rtl_exact_table #(
  parameter int KEY = 32,
  parameter int DATA = 8,
  parameter int WAYS = 5,
  parameter int ADDR = 10
) (
  input  logic            clk,
  input  logic [KEY-1:0]  key,
  input  logic [DATA-1:0] miss,
  output logic            hit,
  output logic [DATA-1:0] data,
  input  logic            write,
  input  logic [7:0]      way,
  input  logic [ADDR-1:0] slot,
  input  logic [KEY+DATA:0] word  // data, key, valid
);
  logic [31:0] crc_a, crc_b;
  rtl_crc #(.KEY(KEY), .POLYNOMIAL(32'hedb88320)) hash_a (.key(key), .crc(crc_a));
  rtl_crc #(.KEY(KEY), .POLYNOMIAL(32'h82f63b78)) hash_b (.key(key), .crc(crc_b));
  logic [127:0] mix;
  assign mix = {2{crc_b, crc_a}};

  logic [KEY-1:0] key_q;
  always_ff @(posedge clk) key_q <= key;

  logic [WAYS-1:0] match;
  logic [DATA*WAYS-1:0] found;
  genvar w;
  generate
    for (w = 0; w < WAYS; w = w + 1) begin : ways
      // Who writes takes a packet's place, so what is read meanwhile is not used.
      (* no_rw_check *) logic [KEY+DATA:0] mem [0:(1<<ADDR)-1];
      logic [KEY+DATA:0] q;
      // Block RAM begins as zero: no entry is valid.
`ifndef SYNTHESIS
      integer n;
      initial for (n = 0; n < (1 << ADDR); n = n + 1) mem[n] = '0;
`endif
      always_ff @(posedge clk) begin
        if (write && way == w) mem[slot] <= word;
        q <= mem[mix[(w*ADDR)%64 +: ADDR]];
      end
      assign match[w] = q[0] && q[KEY:1] == key_q;
      assign found[w*DATA +: DATA] = q[KEY+DATA:KEY+1];
    end
  endgenerate

  // An entry that moves from one way to another is in both for a clock, with the same data.
  logic [DATA-1:0] chosen;
  integer i;
  always_comb begin
    chosen = '0;
    for (i = 0; i < WAYS; i = i + 1)
      if (match[i]) chosen = chosen | found[i*DATA +: DATA];
  end
  always_ff @(posedge clk) begin
    hit <= |match;
    data <= (|match) ? chosen : miss;
  end

  wire unused_bits = &{1'b0, mix};
endmodule
