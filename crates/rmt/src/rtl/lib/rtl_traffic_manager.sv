// Queues between ingress and egress, of equal depth, each in its order. The highest queue that holds something goes
// first. What comes to a full queue is dropped, so whoever offers something never waits for egress: pseudo segments
// that egress itself made cannot block it.
module rtl_traffic_manager #(
  parameter int WIDTH = 32,
  parameter int QUEUES = 4,
  parameter int ADDR = 4,             // of a queue: 2^ADDR descriptors
  parameter int QUEUE = $clog2(QUEUES)
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             in_valid,
  input  logic [QUEUE-1:0] in_queue,
  input  logic [WIDTH-1:0] in_data,
  output logic             drops,     // what is offered now
  output logic             out_valid,
  input  logic             out_ready,
  output logic [QUEUE-1:0] out_queue,
  output logic [WIDTH-1:0] out_data
);
  logic [QUEUES-1:0] room, waits;
  logic [WIDTH-1:0] front [0:QUEUES-1];
  genvar q;
  generate
    for (q = 0; q < QUEUES; q = q + 1) begin : queues
      rtl_fifo #(.WIDTH(WIDTH), .ADDR(ADDR)) queue (
        .clk(clk), .rst(rst),
        .in_valid(in_valid && in_queue == QUEUE'(q)), .in_ready(room[q]), .in_data(in_data),
        .out_valid(waits[q]), .out_ready(out_ready && out_queue == QUEUE'(q)), .out_data(front[q])
      );
    end
  endgenerate
  integer i;
  always_comb begin
    out_queue = '0;
    for (i = 0; i < QUEUES; i = i + 1) if (waits[i]) out_queue = QUEUE'(i);
  end
  assign out_valid = |waits;
  assign out_data = front[out_queue];
  assign drops = in_valid && !room[in_queue];
endmodule
