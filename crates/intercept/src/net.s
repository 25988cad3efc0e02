# The net (net.rs): what runs in the one range from which the kernel takes system calls as they are.
    .text
    .p2align 4
    .globl toe_intercept_child
    .hidden toe_intercept_child
    .type toe_intercept_child, @function
toe_intercept_child:
    # A child or a thread begins: its system calls are not caught yet. rcx is where it goes on.
    .cfi_startproc simple
    .cfi_def_cfa rsp, 0
    .cfi_undefined rip
    lea rsp, [rsp - 128]
    pushfq
    push rcx
    push rax
    push rdi
    push rsi
    push rdx
    push r10
    push r8
    push r11
    cmp qword ptr [rip + {length}], 0
    je 1f
    mov eax, {prctl}
    mov edi, {dispatch}
    mov esi, 1
    mov rdx, qword ptr [rip + {offset}]
    mov r10, qword ptr [rip + {length}]
    mov r8, qword ptr [rip + {selector}]
    test r8, r8
    jz 2f
    add r8, qword ptr gs:[0]
2:
    syscall
1:
    pop r11
    pop r8
    pop r10
    pop rdx
    pop rsi
    pop rdi
    pop rax
    pop rcx
    popfq
    lea rsp, [rsp + 128]
    jmp rcx
    .cfi_endproc
    .size toe_intercept_child, . - toe_intercept_child

    # Where handlers of signals return to: the bytes by which unwinders and debuggers recognise it.
    .p2align 4
    .globl toe_intercept_restore
    .hidden toe_intercept_restore
    .type toe_intercept_restore, @function
    nop
toe_intercept_restore:
    mov rax, 15
    syscall
    .size toe_intercept_restore, . - toe_intercept_restore

    # Room for stubs.
    .p2align 12
    .globl toe_intercept_pool
    .hidden toe_intercept_pool
toe_intercept_pool:
    .skip {pool}, 0xcc
    .size toe_intercept_pool, . - toe_intercept_pool
