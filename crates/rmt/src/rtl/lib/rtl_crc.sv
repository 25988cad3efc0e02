// A reflected CRC of a key, least significant bit first, as a hash. A CRC is linear: each bit of it is the parity of some
// bits of the key, which are constants. So it is a few LUTs deep, however long the key.
module rtl_crc #(
  parameter int KEY = 32,
  parameter logic [31:0] POLYNOMIAL = 32'hedb88320
) (
  input  logic [KEY-1:0] key,
  output logic [31:0]    crc
);
  // Which bits of the key are in each bit of the CRC: a mask of KEY bits for each, the lowest first.
  function automatic logic [32*KEY-1:0] masks();
    integer n, i;
    logic [31:0] weight;
    weight = POLYNOMIAL;
    for (n = KEY - 1; n >= 0; n = n - 1) begin
      for (i = 0; i < 32; i = i + 1) masks[i*KEY + n] = weight[i];
      weight = (weight >> 1) ^ (weight[0] ? POLYNOMIAL : 32'd0);
    end
  endfunction

  // The CRC of zeros.
  function automatic logic [31:0] zeros();
    integer n;
    zeros = 32'hffffffff;
    for (n = 0; n < KEY; n = n + 1) zeros = (zeros >> 1) ^ (zeros[0] ? POLYNOMIAL : 32'd0);
  endfunction

  localparam logic [32*KEY-1:0] MASKS = masks();
  localparam logic [31:0] ZEROS = zeros();

  genvar b;
  generate
    for (b = 0; b < 32; b = b + 1) begin : bits
      assign crc[b] = ZEROS[b] ^ (^(key & MASKS[b*KEY +: KEY]));
    end
  endgenerate
endmodule
