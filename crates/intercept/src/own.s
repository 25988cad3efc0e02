# Programs that bring their own C library, or none (own.rs): their calls are answered on another stack and with the
# thread pointer of the library's own C library. The GS register, which such programs do not use, leads to a thread's Own.
    .set OWN_SELF, 0
    .set OWN_FS, 8
    .set PROGRAM_FS, 16
    .set STACK, 24
    .set STACK_LOW, 32
    .set STACK_HIGH, 40
    .set LEAVE, 48
    .set SELECTOR, 56
    # struct ucontext, uc_mcontext.gregs[REG_RSP]
    .set INTERRUPTED_STACK, 160

    .text
    .p2align 4
    .globl toe_intercept_own_entry
    .hidden toe_intercept_own_entry
    .type toe_intercept_own_entry, @function
toe_intercept_own_entry:
    .cfi_startproc simple
    .cfi_undefined rip
    mov rcx, rsp
    mov rsp, qword ptr gs:[STACK]
    pushfq
    push r11
    push rcx
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
2:  # The kernel does it: the stub has the instruction.
    pop rcx
    pop r11
    popfq
    mov rsp, rcx
    lea r11, [r11 - 2]
    jmp r11
3:
    push r15
    push r14
    push r13
    push r12
    push rbp
    push rbx
    push r9
    push r8
    push r10
    push rdx
    push rsi
    push rdi
    push rax
    push rax
    mov rbx, rsp
    rdfsbase rax
    mov qword ptr gs:[PROGRAM_FS], rax
    mov rax, qword ptr gs:[OWN_FS]
    wrfsbase rax
    mov byte ptr gs:[SELECTOR], 0
    lea rcx, [rip + 4f]
    push rcx
    jmp toe_intercept_ask
4:
    mov byte ptr gs:[SELECTOR], 1
    mov rax, qword ptr gs:[PROGRAM_FS]
    wrfsbase rax
    lea rsp, [rbx + 8]
    cmp ecx, 1
    pop rax
    pop rdi
    pop rsi
    pop rdx
    pop r10
    pop r8
    pop r9
    pop rbx
    pop rbp
    pop r12
    pop r13
    pop r14
    pop r15
    je 2b
    ja 5f
    pop rcx
    pop r11
    popfq
    mov rsp, rcx
    jmp r11
5:  # In place, and a child arms itself.
    pop rcx
    pop r11
    popfq
    mov rsp, rcx
    lea r11, [r11 - 12]
    jmp r11
    .cfi_endproc
    .size toe_intercept_own_entry, . - toe_intercept_own_entry

    # Begins with the program: rdi leads to a Frame. Returns when toe_intercept_own_leave is called.
    .globl toe_intercept_own_run
    .hidden toe_intercept_own_run
    .type toe_intercept_own_run, @function
toe_intercept_own_run:
    .cfi_startproc
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov qword ptr gs:[LEAVE], rsp
    lea rcx, [rsp - 256]
    and rcx, -64
    mov qword ptr gs:[STACK], rcx
    mov rax, qword ptr gs:[PROGRAM_FS]
    mov byte ptr gs:[SELECTOR], 1
    wrfsbase rax
    mov rax, qword ptr [rdi]
    mov rsi, qword ptr [rdi + 16]
    mov rdx, qword ptr [rdi + 24]
    mov r10, qword ptr [rdi + 32]
    mov r8, qword ptr [rdi + 40]
    mov r9, qword ptr [rdi + 48]
    mov rbx, qword ptr [rdi + 56]
    mov rbp, qword ptr [rdi + 64]
    mov r12, qword ptr [rdi + 72]
    mov r13, qword ptr [rdi + 80]
    mov r14, qword ptr [rdi + 88]
    mov r15, qword ptr [rdi + 96]
    mov rcx, qword ptr [rdi + 104]
    mov r11, qword ptr [rdi + 112]
    push qword ptr [rdi + 120]
    mov rdi, qword ptr [rdi + 8]
    popfq
    mov rsp, rcx
    jmp r11
    .cfi_endproc
    .size toe_intercept_own_run, . - toe_intercept_own_run

    .globl toe_intercept_own_leave
    .hidden toe_intercept_own_leave
    .type toe_intercept_own_leave, @function
toe_intercept_own_leave:
    mov rsp, qword ptr gs:[LEAVE]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
    .size toe_intercept_own_leave, . - toe_intercept_own_leave

    # All handlers of the program come here. One that interrupts the library gets the program's thread pointer, and
    # leaves what the library has on its stack.
    .globl toe_intercept_own_signal
    .hidden toe_intercept_own_signal
    .type toe_intercept_own_signal, @function
toe_intercept_own_signal:
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    push r13
    push r14
    rdfsbase rbx
    mov r12, qword ptr gs:[STACK]
    movzx r13d, byte ptr gs:[SELECTOR]
    mov r14, qword ptr gs:[PROGRAM_FS]
    cmp rbx, qword ptr gs:[OWN_FS]
    jne 1f
    wrfsbase r14
1:
    mov rax, qword ptr [rdx + INTERRUPTED_STACK]
    cmp rax, qword ptr gs:[STACK_LOW]
    jb 2f
    cmp rax, qword ptr gs:[STACK_HIGH]
    ja 2f
    cmp rsp, qword ptr gs:[STACK_LOW]
    jb 3f
    cmp rsp, rax
    cmovb rax, rsp
3:
    sub rax, 1024
    and rax, -64
    mov qword ptr gs:[STACK], rax
2:
    mov byte ptr gs:[SELECTOR], 1
    lea rax, [rip + {handlers}]
    call qword ptr [rax + rdi * 8]
    mov byte ptr gs:[SELECTOR], r13b
    mov qword ptr gs:[PROGRAM_FS], r14
    mov qword ptr gs:[STACK], r12
    wrfsbase rbx
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
    .size toe_intercept_own_signal, . - toe_intercept_own_signal
