// The memory of a register: an entry is read CLOCKS clocks before it is changed, and each clock may hit the same entry.
// What the memory does not hold yet comes from the last changes. With two clocks, the entry is in flip-flops where it is
// changed: the second one is for the way out of a large memory, and for the choice.
module rtl_register #(
  parameter int WIDTH = 32,
  parameter int SIZE = 1024,
  parameter int ADDR = 10,
  parameter int CLOCKS = 1,        // 1 or 2
  parameter logic [WIDTH-1:0] INITIAL = '0
) (
  input  logic             clk,
  input  logic [31:0]      index,   // of the entry that is changed CLOCKS later
  output logic [WIDTH-1:0] stored,  // the entry of the index of CLOCKS ago: 0 where there is none
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

  // Of the last clock, and of the entry that may be changed now.
  logic [ADDR-1:0] index_q, index_w;
  logic is_entry_q, is_entry_w;
  logic [WIDTH-1:0] read, last, fetched;
  logic forward, writes;
  assign writes = write && is_entry_w;
  always_ff @(posedge clk) begin
    index_q <= index[ADDR-1:0];
    is_entry_q <= index < 32'(SIZE);
    read <= mem[index[ADDR-1:0]];
    if (writes) mem[index_w] <= changed ^ INITIAL;
    forward <= writes && index_w == index[ADDR-1:0];
    last <= changed;
  end
  // The last clock's entry, without what this clock changes.
  assign fetched = forward ? last : read ^ INITIAL;
  generate
    if (CLOCKS == 1) begin : one
      assign {index_w, is_entry_w} = {index_q, is_entry_q};
      assign stored = is_entry_q ? fetched : '0;
    end else begin : two
      always_ff @(posedge clk) begin
        {index_w, is_entry_w} <= {index_q, is_entry_q};
        stored <= !is_entry_q ? '0 : writes && index_w == index_q ? changed : fetched;
      end
    end
  endgenerate
endmodule
