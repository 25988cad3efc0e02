// A queue in front of whoever may not be ready: what was taken in comes out in its order, each word once.
module rtl_fifo #(
  parameter int WIDTH = 32,
  parameter int ADDR = 4
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             in_valid,
  output logic             in_ready,
  input  logic [WIDTH-1:0] in_data,
  output logic             out_valid,
  input  logic             out_ready,
  output logic [WIDTH-1:0] out_data
);
  logic [WIDTH-1:0] mem [0:(1<<ADDR)-1];
  logic [ADDR:0] head, tail;
  assign in_ready = tail - head != (ADDR+1)'(1 << ADDR);
  assign out_valid = tail != head;
  assign out_data = mem[head[ADDR-1:0]];
  always_ff @(posedge clk) begin
    if (in_valid && in_ready) begin
      mem[tail[ADDR-1:0]] <= in_data;
      tail <= tail + 1;
    end
    if (out_valid && out_ready) head <= head + 1;
    if (rst) {head, tail} <= '0;
  end
endmodule
