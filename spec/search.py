"""The search that the smaller models share: every reachable state, breadth first, with the shortest counterexample."""
import gc, sys, time
from collections import deque

gc.disable()   # states are acyclic and none is dropped before the end: collecting only costs time

class Switches:
    """Protocol switches of one variant; a model's subclass gives the defaults as class attributes."""
    fast={}            # smaller bounds for --fast
    def __init__(s, name, expect, **k):
        s.name=name; s.expect=expect
        for a,b in k.items(): assert hasattr(s,a),a; setattr(s,a,b)

def explore(init, check, steps, limit=8_000_000):
    """check(state) -> None or a violation (property, text); steps(state) -> list of (label, next state)."""
    seen={init:None}; q=deque([init]); n=0
    while q:
        s=q.popleft(); n+=1
        if n>limit: return ('LIMIT',n,None)
        bad=check(s)
        if bad:
            out=['!! '+bad[1]]
            while seen[s] is not None: s,lab=seen[s]; out.append(lab)
            return ('VIOLATION '+bad[0],n,out[::-1])
        for lab,t in steps(s):
            if t not in seen: seen[t]=(s,lab); q.append(t)
    return ('HOLDS',n,None)

def report(variants, run, args):
    """Runs the variants whose short name is in args (all if none is), prints a line each, returns the surprises."""
    verbose='-v' in args; fast='--fast' in args; bad=0
    only=[a for a in args if not a.startswith('-')]
    for p in variants:
        if only and p.name.split()[0] not in only: continue
        if fast:
            for a,b in p.fast.items(): setattr(p,a,b)
        t=time.time(); r,n,tr=run(p); ok=r.startswith(p.expect); bad+=not ok
        print(f"{'ok ' if ok else 'UNEXPECTED'} {p.name}: {r} ({n} states, {time.time()-t:.1f}s)",flush=True)
        if tr and (verbose or not ok):
            for l in tr: print('       ',l)
    return bad

def main(variants, run): sys.exit(min(report(variants,run,sys.argv[1:]),100))
