//! Parameters and fields that hide what they mean: several booleans, tuples for values that need a type, structs of
//! everything.
use crate::ratchets::{Found, hold};
use crate::{Source, is_for_tests, place, sources};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const MOST_FIELDS: usize = 20;

/// Functions and structs of a file, those for tests left out.
struct Shapes<'a> {
    source: &'a Source,
    booleans: Vec<String>,
    tuples: Vec<String>,
    structs: Vec<String>,
}

fn is_boolean(kind: &syn::Type) -> bool {
    matches!(kind, syn::Type::Path(path) if path.path.is_ident("bool"))
}

/// A structure of C (`#[repr(C)]`): it has the fields that its header gives it.
fn is_of_c(attributes: &[syn::Attribute]) -> bool {
    let is_c = |list: &syn::MetaList| list.tokens.to_string().split(',').any(|word| word.trim() == "C");
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("repr") && matches!(&attribute.meta, syn::Meta::List(list) if is_c(list))
    })
}

fn is_tuple(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Tuple(tuple) => tuple.elems.len() > 1,
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

/// Booleans in a parameter, those inside a tuple counted too.
fn booleans(kind: &syn::Type) -> usize {
    match kind {
        syn::Type::Tuple(tuple) => tuple.elems.iter().map(booleans).sum(),
        syn::Type::Reference(reference) => booleans(&reference.elem),
        other => usize::from(is_boolean(other)),
    }
}

impl Shapes<'_> {
    fn signature(&mut self, signature: &syn::Signature) {
        let kinds = || {
            signature.inputs.iter().filter_map(|input| match input {
                syn::FnArg::Typed(typed) => Some(&*typed.ty),
                syn::FnArg::Receiver(_) => None,
            })
        };
        let at = |span: Span| format!("{} {}", place(self.source, span), signature.ident);
        let flags: usize = kinds().map(booleans).sum();
        if flags > 1 {
            self.booleans.push(format!("{}: {flags} booleans", at(signature.ident.span())));
        }
        let tuples = kinds().filter(|kind| is_tuple(kind)).count();
        if tuples > 0 {
            self.tuples.push(at(signature.ident.span()));
        }
    }
}

impl<'ast> Visit<'ast> for Shapes<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.signature(&item.sig);
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.signature(&item.sig);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.signature(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if item.fields.len() > MOST_FIELDS && !is_for_tests(&item.attrs) && !is_of_c(&item.attrs) {
            let at = place(self.source, item.span());
            self.structs.push(format!("{at} {}: {} fields", item.ident, item.fields.len()));
        }
    }
}

fn each_file(rule: &str, what: &str, list: impl Fn(Shapes) -> Vec<String>) {
    let mut found = Found::new();
    for source in &sources() {
        let mut shapes = Shapes { source, booleans: Vec::new(), tuples: Vec::new(), structs: Vec::new() };
        shapes.visit_file(&source.syntax);
        found.entry(source.krate.clone()).or_default().extend(list(shapes));
    }
    hold(rule, what, &found);
}

#[test]
fn a_function_takes_one_boolean_at_most() {
    each_file("booleans", "functions with several booleans, which no caller can read", |shapes| shapes.booleans);
}

#[test]
fn parameters_are_no_tuples() {
    each_file("tuples", "functions with a tuple as a parameter, where a type would name it", |shapes| shapes.tuples);
}

#[test]
fn structs_are_small() {
    each_file("fields", "structs with too many fields", |shapes| shapes.structs);
}

#[test]
fn what_hides_in_a_signature_is_found() {
    let syntax = syn::parse_file(
        "fn a(x: bool, y: (bool, u8)) {} fn b(x: &(u8, u8), y: bool) {} #[cfg(test)] mod t { fn c(x: (u8, u8)) {} }",
    );
    let source = Source { krate: "x".into(), path: "x.rs".into(), text: String::new(), syntax: syntax.unwrap() };
    let mut shapes = Shapes { source: &source, booleans: Vec::new(), tuples: Vec::new(), structs: Vec::new() };
    shapes.visit_file(&source.syntax);
    assert_eq!(
        (shapes.booleans, shapes.tuples),
        (vec!["x.rs:1 a: 2 booleans".into()], vec!["x.rs:1 a".into(), "x.rs:1 b".into()])
    );
}
