# Comes from a stub (stubs.rs). CFA: the program's stack pointer.
    .text
    .globl toe_intercept_entry
    .hidden toe_intercept_entry
    .type toe_intercept_entry, @function
toe_intercept_entry:
    .cfi_startproc simple
    .cfi_def_cfa rsp, 128
    push qword ptr [r11 - 10]
    .cfi_def_cfa_offset 136
    .cfi_offset rip, -136
    push r11
    .cfi_def_cfa_offset 144
    pushfq
    .cfi_def_cfa_offset 152
    cmp rax, {numbers}
    jae 2f
    lea rcx, [rip + {classes}]
    movzx ecx, byte ptr [rcx + rax]
    test ecx, ecx
    jz 2f
    cmp ecx, 1
    jne 3f
    mov ecx, edi
    cmp ecx, dword ptr [rip + {count}]
    jae 2f
    mov r11, qword ptr [rip + {descriptors}]
    cmp dword ptr [r11 + rcx * 4], 0
    jne 3f
2:  # The kernel does it. It leaves the flags as they are.
    popfq
    .cfi_def_cfa_offset 144
    syscall
    pop rcx
    .cfi_def_cfa_offset 136
    lea rsp, [rsp + 136]
    jmp rcx
3:  # Somebody is asked: a Call, then what a C function may change.
    .cfi_def_cfa_offset 152
    push r9
    push r8
    push r10
    push rdx
    push rsi
    push rdi
    push rax
    .cfi_def_cfa_offset 208
    push rbx
    .cfi_def_cfa_offset 216
    .cfi_offset rbx, -216
    mov rbx, rsp
    .cfi_def_cfa_register rbx
    lea rcx, [rip + 8f]
    push rcx
    jmp toe_intercept_ask
8:  # ecx is the verdict.
    mov rsp, rbx
    .cfi_def_cfa_register rsp
    pop rbx
    .cfi_def_cfa_offset 208
    .cfi_restore rbx
    cmp ecx, 1
    pop rax
    pop rdi
    pop rsi
    pop rdx
    pop r10
    pop r8
    pop r9
    .cfi_def_cfa_offset 152
    je 2b
    ja 4f
    popfq
    .cfi_def_cfa_offset 144
    pop rcx
    .cfi_def_cfa_offset 136
    lea rsp, [rsp + 136]
    jmp rcx
4:  # In place: the stub has the instruction in front of where it goes on.
    .cfi_def_cfa_offset 152
    popfq
    pop r11
    lea rsp, [rsp + 136]
    lea r11, [r11 - 2]
    jmp r11
    .cfi_endproc
    .size toe_intercept_entry, . - toe_intercept_entry

    # Asks, with a Call at [rbx + 8], and goes on at [rbx - 8] with the verdict in ecx. Changes what a C function may
    # change of the other registers, but for the vector registers.
    .globl toe_intercept_ask
    .hidden toe_intercept_ask
    .type toe_intercept_ask, @function
toe_intercept_ask:
    .cfi_startproc simple
    .cfi_def_cfa rbx, 216
    .cfi_offset rip, -136
    .cfi_offset rbx, -216
    cld
    mov eax, dword ptr [rip + {vectors}]
    bt eax, {xgetbv_1}
    jnc 4f
    mov r8d, eax
    mov ecx, 1
    xgetbv
    and eax, r8d
4:  # [rbx - 16]: vector registers in use. [rbx - 12]: the verdict.
    sub rsp, 8
    mov dword ptr [rbx - 16], eax
    and rsp, -64
    test eax, {avx512}
    jnz 5f
    test eax, {avx}
    jnz 6f
    sub rsp, 256
    movups [rsp + 0], xmm0
    movups [rsp + 16], xmm1
    movups [rsp + 32], xmm2
    movups [rsp + 48], xmm3
    movups [rsp + 64], xmm4
    movups [rsp + 80], xmm5
    movups [rsp + 96], xmm6
    movups [rsp + 112], xmm7
    movups [rsp + 128], xmm8
    movups [rsp + 144], xmm9
    movups [rsp + 160], xmm10
    movups [rsp + 176], xmm11
    movups [rsp + 192], xmm12
    movups [rsp + 208], xmm13
    movups [rsp + 224], xmm14
    movups [rsp + 240], xmm15
    jmp 7f
6:
    sub rsp, 512
    vmovups [rsp + 0], ymm0
    vmovups [rsp + 32], ymm1
    vmovups [rsp + 64], ymm2
    vmovups [rsp + 96], ymm3
    vmovups [rsp + 128], ymm4
    vmovups [rsp + 160], ymm5
    vmovups [rsp + 192], ymm6
    vmovups [rsp + 224], ymm7
    vmovups [rsp + 256], ymm8
    vmovups [rsp + 288], ymm9
    vmovups [rsp + 320], ymm10
    vmovups [rsp + 352], ymm11
    vmovups [rsp + 384], ymm12
    vmovups [rsp + 416], ymm13
    vmovups [rsp + 448], ymm14
    vmovups [rsp + 480], ymm15
    vzeroupper
    jmp 7f
5:
    sub rsp, 2112
    vmovups [rsp + 0], zmm0
    vmovups [rsp + 64], zmm1
    vmovups [rsp + 128], zmm2
    vmovups [rsp + 192], zmm3
    vmovups [rsp + 256], zmm4
    vmovups [rsp + 320], zmm5
    vmovups [rsp + 384], zmm6
    vmovups [rsp + 448], zmm7
    vmovups [rsp + 512], zmm8
    vmovups [rsp + 576], zmm9
    vmovups [rsp + 640], zmm10
    vmovups [rsp + 704], zmm11
    vmovups [rsp + 768], zmm12
    vmovups [rsp + 832], zmm13
    vmovups [rsp + 896], zmm14
    vmovups [rsp + 960], zmm15
    vmovups [rsp + 1024], zmm16
    vmovups [rsp + 1088], zmm17
    vmovups [rsp + 1152], zmm18
    vmovups [rsp + 1216], zmm19
    vmovups [rsp + 1280], zmm20
    vmovups [rsp + 1344], zmm21
    vmovups [rsp + 1408], zmm22
    vmovups [rsp + 1472], zmm23
    vmovups [rsp + 1536], zmm24
    vmovups [rsp + 1600], zmm25
    vmovups [rsp + 1664], zmm26
    vmovups [rsp + 1728], zmm27
    vmovups [rsp + 1792], zmm28
    vmovups [rsp + 1856], zmm29
    vmovups [rsp + 1920], zmm30
    vmovups [rsp + 1984], zmm31
    kmovq [rsp + 2048], k0
    kmovq [rsp + 2056], k1
    kmovq [rsp + 2064], k2
    kmovq [rsp + 2072], k3
    kmovq [rsp + 2080], k4
    kmovq [rsp + 2088], k5
    kmovq [rsp + 2096], k6
    kmovq [rsp + 2104], k7
    vzeroupper
7:
    lea rdi, [rbx + 8]
    call qword ptr [rip + {ask}]
    mov dword ptr [rbx - 12], eax
    mov eax, dword ptr [rbx - 16]
    test eax, {avx512}
    jnz 5f
    # What was not in use is zero again.
    test dword ptr [rip + {vectors}], {avx512}
    jz 4f
    vpxord zmm16, zmm16, zmm16
    vpxord zmm17, zmm17, zmm17
    vpxord zmm18, zmm18, zmm18
    vpxord zmm19, zmm19, zmm19
    vpxord zmm20, zmm20, zmm20
    vpxord zmm21, zmm21, zmm21
    vpxord zmm22, zmm22, zmm22
    vpxord zmm23, zmm23, zmm23
    vpxord zmm24, zmm24, zmm24
    vpxord zmm25, zmm25, zmm25
    vpxord zmm26, zmm26, zmm26
    vpxord zmm27, zmm27, zmm27
    vpxord zmm28, zmm28, zmm28
    vpxord zmm29, zmm29, zmm29
    vpxord zmm30, zmm30, zmm30
    vpxord zmm31, zmm31, zmm31
    kxorq k0, k0, k0
    kxorq k1, k1, k1
    kxorq k2, k2, k2
    kxorq k3, k3, k3
    kxorq k4, k4, k4
    kxorq k5, k5, k5
    kxorq k6, k6, k6
    kxorq k7, k7, k7
4:
    test eax, {avx}
    jnz 6f
    test dword ptr [rip + {vectors}], {avx}
    jz 4f
    vzeroupper
4:
    movups xmm0, [rsp + 0]
    movups xmm1, [rsp + 16]
    movups xmm2, [rsp + 32]
    movups xmm3, [rsp + 48]
    movups xmm4, [rsp + 64]
    movups xmm5, [rsp + 80]
    movups xmm6, [rsp + 96]
    movups xmm7, [rsp + 112]
    movups xmm8, [rsp + 128]
    movups xmm9, [rsp + 144]
    movups xmm10, [rsp + 160]
    movups xmm11, [rsp + 176]
    movups xmm12, [rsp + 192]
    movups xmm13, [rsp + 208]
    movups xmm14, [rsp + 224]
    movups xmm15, [rsp + 240]
    jmp 7f
6:
    vmovups ymm0, [rsp + 0]
    vmovups ymm1, [rsp + 32]
    vmovups ymm2, [rsp + 64]
    vmovups ymm3, [rsp + 96]
    vmovups ymm4, [rsp + 128]
    vmovups ymm5, [rsp + 160]
    vmovups ymm6, [rsp + 192]
    vmovups ymm7, [rsp + 224]
    vmovups ymm8, [rsp + 256]
    vmovups ymm9, [rsp + 288]
    vmovups ymm10, [rsp + 320]
    vmovups ymm11, [rsp + 352]
    vmovups ymm12, [rsp + 384]
    vmovups ymm13, [rsp + 416]
    vmovups ymm14, [rsp + 448]
    vmovups ymm15, [rsp + 480]
    jmp 7f
5:
    vmovups zmm0, [rsp + 0]
    vmovups zmm1, [rsp + 64]
    vmovups zmm2, [rsp + 128]
    vmovups zmm3, [rsp + 192]
    vmovups zmm4, [rsp + 256]
    vmovups zmm5, [rsp + 320]
    vmovups zmm6, [rsp + 384]
    vmovups zmm7, [rsp + 448]
    vmovups zmm8, [rsp + 512]
    vmovups zmm9, [rsp + 576]
    vmovups zmm10, [rsp + 640]
    vmovups zmm11, [rsp + 704]
    vmovups zmm12, [rsp + 768]
    vmovups zmm13, [rsp + 832]
    vmovups zmm14, [rsp + 896]
    vmovups zmm15, [rsp + 960]
    vmovups zmm16, [rsp + 1024]
    vmovups zmm17, [rsp + 1088]
    vmovups zmm18, [rsp + 1152]
    vmovups zmm19, [rsp + 1216]
    vmovups zmm20, [rsp + 1280]
    vmovups zmm21, [rsp + 1344]
    vmovups zmm22, [rsp + 1408]
    vmovups zmm23, [rsp + 1472]
    vmovups zmm24, [rsp + 1536]
    vmovups zmm25, [rsp + 1600]
    vmovups zmm26, [rsp + 1664]
    vmovups zmm27, [rsp + 1728]
    vmovups zmm28, [rsp + 1792]
    vmovups zmm29, [rsp + 1856]
    vmovups zmm30, [rsp + 1920]
    vmovups zmm31, [rsp + 1984]
    kmovq k0, [rsp + 2048]
    kmovq k1, [rsp + 2056]
    kmovq k2, [rsp + 2064]
    kmovq k3, [rsp + 2072]
    kmovq k4, [rsp + 2080]
    kmovq k5, [rsp + 2088]
    kmovq k6, [rsp + 2096]
    kmovq k7, [rsp + 2104]
7:
    mov ecx, dword ptr [rbx - 12]
    jmp qword ptr [rbx - 8]
    .cfi_endproc
    .size toe_intercept_ask, . - toe_intercept_ask
