/** The style of the pages: light and dark, from a phone's width up. On a phone the rows of tables are blocks. */
export const pageStyle = `
:root{color-scheme:light dark;--ink:light-dark(#16202b,#e6ebf0);--soft:light-dark(#505e6e,#9dabba);--line:light-dark(#dde3e9,#2a3541);--card:light-dark(#fff,#161d25);--back:light-dark(#f3f5f8,#0e1318);--good:light-dark(#15703f,#5fd08f);--bad:light-dark(#b3261e,#ff8a80);--link:light-dark(#1257c0,#7fb2ff);--code:light-dark(#f3f5f8,#0e1318)}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
.frame{max-width:78rem;margin:0 auto;padding:1.5rem 1rem;display:grid;gap:1.5rem;grid-template-columns:minmax(0,1fr)}
h1{font-size:1.5rem;line-height:1.25;margin:0}
h2{font-size:1.2rem;margin:0 0 .6rem}
h3{font-size:1rem;margin:0 0 .4rem;overflow-wrap:anywhere}
p{margin:0 0 .7rem;max-width:46rem}
.soft{color:var(--soft)}
a{color:var(--link)}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1.1rem 1.25rem;margin-bottom:1.25rem;min-width:0}
section>:last-child,article>:last-child{margin-bottom:0}
article{border-top:1px solid var(--line);padding-top:1.1rem;margin-top:1.1rem}
code,pre,kbd{font:.9em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--code);border-radius:.25rem;padding:.05em .3em;overflow-wrap:anywhere}
pre{margin:0;padding:.8rem 1rem;background:var(--code);border:1px solid var(--line);border-radius:.5rem;overflow-x:auto}
pre code{background:none;padding:0;overflow-wrap:normal}
.method{color:var(--good);font-weight:700}
.name{color:var(--soft);font-weight:400;font-size:.9rem;margin-left:.5rem;white-space:nowrap}
nav ul{list-style:none;margin:0;padding:0}
nav li{margin:.15rem 0}
nav li li{margin-left:.9rem}
nav a{text-decoration:none;overflow-wrap:anywhere}nav a:hover{text-decoration:underline}
table{width:100%;border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:.45rem 1.25rem .45rem 0;border-top:1px solid var(--line);font-weight:400}
thead th{border-top:0;color:var(--soft);font-size:.9rem}
tbody th{white-space:nowrap}
tbody tr:target{outline:2px solid var(--link);outline-offset:2px}
.languages{border:0;padding:0;margin:0 0 .25rem;display:flex;flex-wrap:wrap;gap:.4rem 1.1rem}
.languages legend{padding:0;margin-bottom:.25rem}
.languages label{display:flex;gap:.4rem;align-items:center;cursor:pointer}
.example{position:relative;margin:.6rem 0 .8rem}
.example .copy{position:absolute;top:.45rem;right:.45rem}
body:has(#in-curl:checked) .example:not(.curl),body:has(#in-javascript:checked) .example:not(.javascript),body:has(#in-python:checked) .example:not(.python){display:none}
form{display:flex;flex-wrap:wrap;gap:.6rem;align-items:end;margin:.6rem 0}
form[hidden]{display:none}
form label{display:grid;gap:.2rem;font-size:.9rem;color:var(--soft)}
form label.query{flex:1 1 14rem}
input[type=text],input[type=password]{width:100%;font:inherit;color:var(--ink);background:var(--back);border:1px solid var(--soft);border-radius:.4rem;padding:.35rem .6rem;min-width:0}
.token label{flex:0 1 30rem}
button{font:inherit;color:var(--ink);background:var(--back);border:1px solid var(--soft);border-radius:.4rem;padding:.35rem .9rem;cursor:pointer}
button:disabled{opacity:.6}
.copy{font-size:.8rem;padding:.15rem .6rem;background:var(--card);border-color:var(--line);color:var(--soft)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.came{flex-basis:100%;min-width:0}
.came pre{max-height:24rem;overflow:auto}
.came summary{cursor:pointer;color:var(--soft);margin-top:.4rem}
.came .status{margin:0 0 .4rem;font-weight:600}
.came .bad{color:var(--bad)}.came .good{color:var(--good)}
@media(min-width:62rem){
.frame.wide{grid-template-columns:15rem minmax(0,1fr)}
.frame.wide>header{grid-column:1/-1}
nav{position:sticky;top:1.5rem;align-self:start;max-height:calc(100vh - 3rem);overflow-y:auto}
}
@media(max-width:61.99rem){
nav>ul{columns:2}
nav li{break-inside:avoid}
}
@media(max-width:44rem){
.frame{padding:1rem .75rem}
section{padding:.9rem .85rem}
table,tbody,tr{display:block}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
tbody tr{padding:.5rem 0;border-top:1px solid var(--line)}
tbody tr:first-child{border-top:0}
tbody th,tbody td{display:block;border:0;padding:.1rem 0;white-space:normal}
.example .copy{position:static;margin-top:.3rem}
.problems tbody th,.problems td:nth-child(2){display:inline;margin-right:.5rem}
}
`;
