// A block of eight list entries, taken apart. An entry names a region for those behind it (bit 63), or is a part of a
// segment: 36 bits of offset, 27 bits of length. Entries in front of `first` do not count.
module split_sums (
  input  logic [511:0] block,
  input  logic [2:0]   first,
  input  logic [31:0]  key,       // the region of the parts before any entry names one
  output logic [7:0]   part,
  output logic [239:0] ends,      // 8 of 30 bits: bytes of all parts up to and with this one
  output logic [287:0] offsets,   // 8 of 36 bits
  output logic [255:0] keys       // 8 of 32 bits: the region of the parts behind this entry, or of this part
);
  integer i;
  // Sums of up to two and four lengths that end here: a tree, whose depth is the logarithm of the number of entries.
  logic [239:0] one, two, four;
  logic [31:0] region;
  always_comb begin
    region = key;
    for (i = 0; i < 8; i = i + 1) begin
      part[i] = i >= 32'(first) && !block[i*64+63];
      one[i*30 +: 30] = part[i] ? 30'(block[i*64 +: 27]) : 30'd0;
      if (i >= 32'(first) && block[i*64+63]) region = block[i*64 +: 32];
      offsets[i*36 +: 36] = block[i*64+27 +: 36];
      keys[i*32 +: 32] = region;
    end
    two = one;
    for (i = 1; i < 8; i = i + 1) two[i*30 +: 30] = one[i*30 +: 30] + one[(i-1)*30 +: 30];
    four = two;
    for (i = 2; i < 8; i = i + 1) four[i*30 +: 30] = two[i*30 +: 30] + two[(i-2)*30 +: 30];
    ends = four;
    for (i = 4; i < 8; i = i + 1) ends[i*30 +: 30] = four[i*30 +: 30] + four[(i-4)*30 +: 30];
  end
endmodule
