# Programs whose threads run on stacks that are too small for who is asked (apart.rs). As entry.s, but a call that is
# asked about is answered on a stack apart, unless the thread is there already, or on its signal stack.
    .set TOP, 0
    .set LOW, 8
    .set LENGTH, 16
    .set SIGNALS_LOW, 24
    .set SIGNALS_LENGTH, 32

    # A thread's own words, zero when it begins. The library is there from the start: they are at a fixed distance
    # from the thread pointer (ELF TLS, "initial exec").
    .section .tbss,"awT",@nobits
    .p2align 3
    .type toe_intercept_apart, @object
toe_intercept_apart:
    .skip 48
    .size toe_intercept_apart, 48

    .text
    .globl toe_intercept_apart_words
    .hidden toe_intercept_apart_words
    .type toe_intercept_apart_words, @function
toe_intercept_apart_words:
    mov rax, qword ptr [rip + toe_intercept_apart@GOTTPOFF]
    add rax, qword ptr fs:[0]
    ret
    .size toe_intercept_apart_words, . - toe_intercept_apart_words

    # Comes from a stub. Until the stack is another one, at most 200 bytes of the program's are used.
    .p2align 4
    .globl toe_intercept_apart_entry
    .hidden toe_intercept_apart_entry
    .type toe_intercept_apart_entry, @function
toe_intercept_apart_entry:
    .cfi_startproc simple
    .cfi_undefined rip
    push r11
    pushfq
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
    syscall
    pop rcx
    lea rsp, [rsp + 128]
    jmp rcx
3:
    mov r11, qword ptr [rip + toe_intercept_apart@GOTTPOFF]
    mov rcx, rsp
    sub rcx, qword ptr fs:[r11 + SIGNALS_LOW]
    cmp rcx, qword ptr fs:[r11 + SIGNALS_LENGTH]
    jb 4f
    mov rcx, rsp
    sub rcx, qword ptr fs:[r11 + LOW]
    cmp rcx, qword ptr fs:[r11 + LENGTH]
    jb 4f
    mov rcx, qword ptr fs:[r11 + TOP]
    test rcx, rcx
    jz 6f
    xchg rcx, rsp
    jmp 5f
4:
    mov rcx, rsp
5:
    push rcx
    push r9
    push r8
    push r10
    push rdx
    push rsi
    push rdi
    push rax
    push rbx
    mov rbx, rsp
    lea rcx, [rip + 8f]
    push rcx
    jmp toe_intercept_ask
8:  # ecx is the verdict.
    mov rsp, rbx
    pop rbx
    cmp ecx, 1
    pop rax
    pop rdi
    pop rsi
    pop rdx
    pop r10
    pop r8
    pop r9
    pop rsp
    je 2b
    ja 9f
    popfq
    pop rcx
    lea rsp, [rsp + 128]
    jmp rcx
9:  # In place: the stub has the instruction in front of where it goes on.
    popfq
    pop r11
    lea rsp, [rsp + 128]
    lea r11, [r11 - 2]
    jmp r11
6:  # The thread's first: a stack, whose lowest page may not be touched.
    push rax
    push rdi
    push rsi
    push rdx
    push r10
    push r8
    push r9
    mov eax, {mmap}
    xor edi, edi
    mov esi, {room}
    xor edx, edx
    mov r10d, {mapping}
    mov r8, -1
    xor r9d, r9d
    syscall
    cmp rax, -4096
    ja 7f
    mov r8, rax
    lea rdi, [rax + 4096]
    mov esi, {room} - 4096
    mov edx, {usable}
    mov eax, {mprotect}
    syscall
    test rax, rax
    jnz 7f
    mov r11, qword ptr [rip + toe_intercept_apart@GOTTPOFF]
    mov qword ptr fs:[r11 + LOW], r8
    mov qword ptr fs:[r11 + LENGTH], {room}
    lea r8, [r8 + {room}]
    mov qword ptr fs:[r11 + TOP], r8
    pop r9
    pop r8
    pop r10
    pop rdx
    pop rsi
    pop rdi
    pop rax
    jmp 3b
7:  # No memory for it.
    pop r9
    pop r8
    pop r10
    pop rdx
    pop rsi
    pop rdi
    pop rax
    mov rax, -{no_memory}
    popfq
    pop rcx
    lea rsp, [rsp + 128]
    jmp rcx
    .cfi_endproc
    .size toe_intercept_apart_entry, . - toe_intercept_apart_entry
