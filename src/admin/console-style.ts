/** The style of the console: light and dark, from a phone's width up. */
export const consoleStyle = `
:root{color-scheme:light dark;--ink:light-dark(#16202b,#e6ebf0);--soft:light-dark(#566474,#98a6b5);--line:light-dark(#dde3e9,#2a3541);--card:light-dark(#fff,#161d25);--back:light-dark(#f3f5f8,#0e1318);--good:light-dark(#15703f,#5fd08f);--bad:light-dark(#b3261e,#ff8a80);--busy:light-dark(#8a5a00,#f0b84d);--link:light-dark(#1257c0,#7fb2ff)}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
header,main,footer{max-width:72rem;margin:0 auto;padding:1rem}
header{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;align-items:baseline;padding-top:1.5rem}
h1{font-size:1.25rem;margin:0}
h2{font-size:1rem;margin:0 0 .5rem}
p{margin:0}
header p,footer p{color:var(--soft)}
#state{width:100%;margin:.75rem 0 0;padding:.6rem .9rem;border-radius:.5rem;background:var(--card);border:1px solid var(--line);border-left:.4rem solid var(--soft);color:var(--ink);font-weight:600}
#state.good{border-left-color:var(--good)}#state.bad{border-left-color:var(--bad)}#state.busy{border-left-color:var(--busy)}
#reasons{width:100%;margin:0;padding-left:1.2rem}#reasons:empty{display:none}#reasons em{color:var(--soft);font-style:normal}
main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));padding-top:0}
section{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem;min-width:0}
section.wide{grid-column:1/-1}
.says{margin-bottom:.6rem}
.good{color:var(--good)}.bad{color:var(--bad)}.busy{color:var(--busy)}
dl{display:grid;grid-template-columns:auto 1fr;gap:.15rem 1rem;margin:0}
dt{color:var(--soft)}
dd{margin:0;text-align:right;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem 0 .3rem 1rem;text-align:left;font-weight:400;white-space:nowrap;border-top:1px solid var(--line)}
th:first-child{padding-left:0}
thead th{border-top:0;color:var(--soft)}
.number{text-align:right}
svg{display:block;width:100%;height:3rem;margin-bottom:.5rem;border-bottom:1px solid var(--line)}
polyline{fill:none;stroke:var(--link);stroke-width:1.5;vector-effect:non-scaling-stroke}
progress{width:100%;height:.6rem;margin-top:.5rem;accent-color:var(--link)}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin-top:.9rem}
select{flex:1;min-width:0}
select,button{font:inherit;color:inherit;background:var(--back);border:1px solid var(--soft);border-radius:.4rem;padding:.3rem .7rem}
button{cursor:pointer}button:disabled{opacity:.5}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
output{flex-basis:100%;color:var(--soft)}
a{color:var(--link)}
`;
