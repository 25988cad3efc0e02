// The control bus behind AXI4-Lite. A command is a write to COMMAND (1 writes an entry, 2 reads one), and its response
// comes when it is done in all stages: so the next one finds it done. docs/RTL.md has the addresses.
module rtl_control #(
  parameter int BITS = 64          // of an operation's data
) (
  input  logic            clk,
  input  logic            rst,
  input  logic            s_axil_awvalid,
  output logic            s_axil_awready,
  input  logic [11:0]     s_axil_awaddr,
  input  logic            s_axil_wvalid,
  output logic            s_axil_wready,
  input  logic [31:0]     s_axil_wdata,
  output logic            s_axil_bvalid,
  input  logic            s_axil_bready,
  output logic [1:0]      s_axil_bresp,
  input  logic            s_axil_arvalid,
  output logic            s_axil_arready,
  input  logic [11:0]     s_axil_araddr,
  output logic            s_axil_rvalid,
  input  logic            s_axil_rready,
  output logic [31:0]     s_axil_rdata,
  output logic [1:0]      s_axil_rresp,
  input  logic [127:0]    counts,      // what COUNTS shows
  output logic [1:0]      ctl_valid,   // of ingress, of egress
  output logic            ctl_write,
  output logic [7:0]      ctl_target,
  output logic [31:0]     ctl_index,
  output logic [BITS-1:0] ctl_data,
  input  logic            ctl_done,
  input  logic [BITS-1:0] ctl_result,
  output logic            session_write,
  output logic [3:0]      session,
  output logic [9:0]      session_port, // with a bit in front: there is such a session
  output logic [31:0]     generator_period,
  output logic [15:0]     generator_count,
  output logic [8:0]      generator_port
);
  localparam int WORDS = (BITS + 31) / 32;
  localparam logic [1:0] OKAY = 0, SLVERR = 2;

  logic [WORDS*32-1:0] data, result;
  logic [8:0] target;  // 256 and more: of egress
  logic [31:0] index;
  logic waits, takes;
  logic [9:0] at;
  assign takes = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid && !waits;
  assign {s_axil_awready, s_axil_wready} = {takes, takes};
  assign at = s_axil_awaddr[11:2];
  assign s_axil_arready = !s_axil_rvalid;
  assign {ctl_target, ctl_index, ctl_data} = {target[7:0], index, data[BITS-1:0]};
  assign s_axil_bresp = refused ? SLVERR : OKAY;
  logic refused;
  always_ff @(posedge clk) begin
    ctl_valid <= '0;
    session_write <= 1'b0;
    if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (takes) begin
      s_axil_bvalid <= 1'b1;
      refused <= 1'b0;
      if (at == 10'h8) target <= s_axil_wdata[8:0];
      else if (at == 10'h9) index <= s_axil_wdata;
      else if (at == 10'ha && (s_axil_wdata == 1 || s_axil_wdata == 2)) begin
        ctl_valid <= target[8] ? 2'b10 : 2'b01;
        ctl_write <= s_axil_wdata == 1;
        waits <= 1'b1;
        s_axil_bvalid <= 1'b0;
      end else if (at == 10'hb)
        {session_write, session, session_port} <= {1'b1, s_axil_wdata[19:16], s_axil_wdata[9:0]};
      else if (at == 10'hc) generator_period <= s_axil_wdata;
      else if (at == 10'hd) {generator_port, generator_count} <= s_axil_wdata[24:0];
      else if (at >= 10'h40 && 32'(at) < 32'h40 + WORDS) data[(32'(at) - 32'h40)*32 +: 32] <= s_axil_wdata;
      else refused <= 1'b1;
    end
    if (waits && ctl_done) begin
      {waits, s_axil_bvalid} <= 2'b01;
      result <= (WORDS*32)'(ctl_result);
    end
    if (s_axil_rready) s_axil_rvalid <= 1'b0;
    if (s_axil_arvalid && s_axil_arready) begin
      s_axil_rvalid <= 1'b1;
      s_axil_rresp <= OKAY;
      if (s_axil_araddr[11:2] == 0) s_axil_rdata <= 32'h4f544f45;
      else if (s_axil_araddr[11:2] >= 4 && s_axil_araddr[11:2] < 8) s_axil_rdata <= counts[s_axil_araddr[3:2]*32 +: 32];
      else if (s_axil_araddr[11:2] >= 10'h80 && 32'(s_axil_araddr[11:2]) < 32'h80 + WORDS)
        s_axil_rdata <= result[(32'(s_axil_araddr[11:2]) - 32'h80)*32 +: 32];
      else {s_axil_rresp, s_axil_rdata} <= {SLVERR, 32'd0};
    end
    if (rst) {waits, s_axil_bvalid, s_axil_rvalid, generator_period, generator_count, generator_port} <= '0;
  end
  wire unused_bits = &{1'b0, s_axil_awaddr, s_axil_araddr, data};
endmodule
