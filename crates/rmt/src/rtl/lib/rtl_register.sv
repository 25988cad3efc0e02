// The memory of a register: an entry is read in the clock of its index, changed in the next and may be read again in
// that same clock, so each clock may hit the same entry. What the memory does not hold yet comes from the last change.
module rtl_register #(
  parameter int WIDTH = 32,
  parameter int SIZE = 1024,
  parameter int ADDR = 10,
  parameter logic [WIDTH-1:0] INITIAL = '0
) (
  input  logic             clk,
  input  logic [ADDR-1:0]  index,   // of the entry that is changed in the next clock
  output logic [WIDTH-1:0] stored,  // the entry of the last clock's index
  input  logic             write,   // and what it becomes
  input  logic [WIDTH-1:0] changed
);
  // Block RAM begins as zero, so what it holds is the difference from the initial value. What is read of an entry in
  // the clock in which it is written is not used.
  (* no_rw_check *) logic [WIDTH-1:0] mem [0:SIZE-1];
`ifndef SYNTHESIS
  integer n;
  initial for (n = 0; n < SIZE; n = n + 1) mem[n] = '0;
`endif

  logic [ADDR-1:0] index_q;
  logic [WIDTH-1:0] read, last;
  logic forward;
  always_ff @(posedge clk) begin
    index_q <= index;
    read <= mem[index];
    if (write) mem[index_q] <= changed ^ INITIAL;
    forward <= write && index_q == index;
    last <= changed;
  end
  assign stored = forward ? last : read ^ INITIAL;
endmodule
