"""What a browser loads of the console says the same as what was written, in fewer bytes."""

from __future__ import annotations

import pytest

from weft.api.minify import minify_css, minify_js


@pytest.mark.parametrize(
    ("written", "served"),
    [
        ("// About.\nlet a = 1; // one\n", "let a=1;"),
        ("/** @param {string} a */\nexport const f = (a) => a;", "export let f=(a)=>a;"),
        ("let x = /** @type {any} */ (1);", "let x=(1);"),
        ('const s = "// no /* comment */  \\" two";', 'let s="// no /* comment */  \\" two";'),
        ("const s = '\"  a';", "let s='\"  a';"),
        ("if (a) {\n  b();\n}\nc();", "if(a){b()}c();"),
        ("f({\n  a,\n  b,\n});", "f({a,b});"),
        ("typeof a; return b; new C", "typeof a;return b;new C"),
        ("a + +b; a + ++b; a - -b; a++ + b", "a+ +b;a+ ++b;a- -b;a++ +b"),
        ("a\n++b", "a\n++b"),
        (
            "const a = 1; export const b = c.const; for (const d of e) f({ const: 1 })",
            "let a=1;export let b=c.const;for(let d of e)f({const:1})",
        ),
        ("f(); }", "f()}"),
        ("x = a\n  ? b\n  : c;", "x=a?b:c;"),
        ("a / b / c; (a) / 2; b[0] / 2", "a/b/c;(a)/2;b[0]/2"),
        ("x = /a  [/*] \\/ b/g;", "x=/a  [/*] \\/ b/g;"),
        ("s.split(/ {2}/).map((one) => /x  y/.test(one))", "s.split(/ {2}/).map((one)=>/x  y/.test(one))"),
        ("return /a  b/", "return/a  b/"),
    ],
)
def test_code_keeps_its_meaning(written: str, served: str) -> None:
    assert minify_js(written) == served


@pytest.mark.parametrize(
    ("written", "served"),
    [
        ("`a  b\n  // text  ${ x + 1 } /* text */`", "`a  b\n// text  ${x+1} /* text */`"),
        ("`${ a ? `${ b }  c` : { d: `}` }.d }  e`", "`${a?`${b}  c`:{d:`}`}.d}  e`"),
        ("`\\`  ${ a } \\${ b }`", "`\\`  ${a} \\${ b }`"),
        ("html`<p>\n  <b>${ a }</b>\n  text\n</p>`", "html`<p><b>${a}</b>text</p>`"),
        ("`$5  ${ a }$`", "`$5  ${a}$`"),
    ],
)
def test_the_text_of_a_template_stays_but_for_white_space_beside_tags(written: str, served: str) -> None:
    assert minify_js(written) == served


@pytest.mark.parametrize(
    ("written", "served"),
    [
        (
            "/* a */\n.a, .b > c {\n  color: red;\n  margin: 0 auto;\n}\n",
            ".a,.b > c{color:red;margin:0 auto}",
        ),
        (
            "@media (max-width: 720px) and (hover) { a { b: c; } }",
            "@media (max-width:720px) and (hover){a{b:c}}",
        ),
        ('.a::before { content: "x,  y; z "; }', '.a::before{content:"x,  y; z "}'),
        (".a { width: calc(100% - 4px); }\n.b :is(c) { d: e; }", ".a{width:calc(100% - 4px)}.b :is(c){d:e}"),
    ],
)
def test_a_style_sheet_keeps_its_rules(written: str, served: str) -> None:
    assert minify_css(written) == served
