#!/usr/bin/env python3
"""The coverage barrier: from when on does the stream carry every write to a table that was just added to the publication?

A write to R is decoded by what the publication said where the write stands in the WAL. So a transaction that wrote before the
ALTER PUBLICATION … ADD TABLE r committed, and commits after it, never delivers that write, and no PENDING, RING or taint knows of
it. Its lock on R is released only after its commit is visible (CommitTransaction: WAL, procarray, locks).

Writers: begin (lock on R) -> write -> commit record in WAL -> visible -> lock gone; the writer P is prepared (two-phase): its lock
has no session. Freshet: ALTER commits -> reads who holds a lock on R -> waits until they are gone -> R is covered. A fill takes
S0, then reads; it may install if R was covered before its S0.

Minor versions without the 2025 fix of logical-decoding invalidations (PostgreSQL commit 4909b38af): decoding the commit of a transaction that straddles the
ALTER leaves the walsender with an old cache entry for R, and later writes to R are lost too, until the walsender is started again.
The straddling transaction may be decoded long after it ended, so starting again too early heals nothing; and what was decoded and
lost before the new start may still be invisible after it, so the locks have to be waited for once more.

Checked: FRESH, an installed entry reflects every commit that the stream has passed, delivered or not.
"""
from search import Switches, explore, main

class P(Switches):
    barrier=True       # wait for the holders of locks on R, else covered as soon as the ALTER committed
    read='after'       # the lock holders are read 'after' the ALTER committed | 'before'
    holder='lock'      # a writer has ended when its 'lock' is gone | when its commit is in the 'wal'
    prepared=True      # prepared transactions are among the holders that are waited for
    s0='covered'       # a fill installs if its 'covered'-reading came before its S0 | 'arrive': if R is covered when the result arrives
    fixed=True         # the server has the 2025 fix
    restart=None       # without the fix, the walsender is started again: None | after the 'wait' | 'passed': once the stream passed
                       # the end() read after the wait | 'rewait': then waits for the holders of locks again | 'slot': a new slot,
                       # made after the wait
    fills=2

NAMES=('W0','P','ALTER')
ALTER=2

def run(p):
    # state: pcs, published flags, wal, vis, dl, poisoned, alter, holders, covered phase, pending, entry, fills left, fill, restart target
    # alter: False/True (committed)   phase: 'new' | 'wait' | 'again' | 'restarted' | 'rewait' | 'covered'
    N=ALTER
    init=((0,)*N,(False,)*N,(),frozenset(),0,False,False,None,'new',frozenset(),None,p.fills,None,0)
    show=lambda xs:'{'+','.join(NAMES[x] for x in sorted(xs))+'}'
    def check(s):
        wal,dl,ent=s[2],s[4],s[10]
        if ent is not None and not frozenset(wal[:dl])-{ALTER}<=ent:
            return ('FRESH',f'entry={show(ent)}, the stream has passed {show(wal[:dl])}')
        return None
    def steps(s):
        pcs,pub,wal,vis,dl,poison,alter,hold,phase,pend,ent,left,fill,target=s; out=[]
        def add(lab,**k):
            d=dict(pcs=pcs,pub=pub,wal=wal,vis=vis,dl=dl,poison=poison,alter=alter,hold=hold,phase=phase,pend=pend,ent=ent,left=left,fill=fill,target=target); d.update(k)
            out.append((lab,tuple(d.values())))
        holders=lambda:frozenset(w for w in range(N) if 1<=pcs[w]<=4 and (p.prepared or w!=1) and not (p.holder=='wal' and pcs[w]>=3))
        for w in range(N):
            st=pcs[w]; nx=pcs[:w]+(st+1,)+pcs[w+1:]; n=NAMES[w]
            if st==0: add(f'{n}: lock on R',pcs=nx)
            elif st==1: add(f'{n}: writes to R ('+('' if alter else 'not ')+'published)',pcs=nx,pub=pub[:w]+(alter,)+pub[w+1:])
            elif st==2: add(f'{n}: commit record in WAL',pcs=nx,wal=wal+(w,))
            elif st==3: add(f'{n}: visible',pcs=nx,vis=vis|{w})
            elif st==4: add(f'{n}: lock gone',pcs=nx)
        if dl<len(wal):
            x=wal[dl]
            if x==ALTER: add('stream passes the ALTER',dl=dl+1)
            elif pub[x] and not poison: add(f'stream delivers {NAMES[x]}',dl=dl+1,ent=None,pend=pend|{x},fill=fill and (*fill[:3],fill[3]|{x},fill[4]))
            else: add(f'stream passes {NAMES[x]} without its write',dl=dl+1,poison=poison or (not p.fixed and not pub[x] and ALTER in wal[:dl]))
        # Freshet covers R
        if phase=='new':
            if p.read=='before' and hold is None: add(f'holders of locks on R: {show(holders())}',hold=holders())
            elif not alter: add('ALTER PUBLICATION committed',alter=True,wal=wal+(ALTER,))
            elif not p.barrier: add('R is covered',phase='covered')
            elif hold is None: add(f'holders of locks on R: {show(holders())}',hold=holders(),phase='wait')
            else: add('waits',phase='wait')
        elif phase=='wait':
            if not hold&holders(): add(f'the wait is over, end()={len(wal)}',phase='covered' if p.fixed or p.restart is None else 'again',target=len(wal))
        elif phase=='again':
            if p.restart=='wait' or (p.restart=='passed' and dl>=target): add('walsender started again',phase='covered',poison=False)
            elif p.restart=='rewait' and dl>=target: add('walsender started again',phase='restarted',poison=False)
            # The creation of a slot waits for every transaction that has written to become visible; the entries are flushed.
            elif p.restart=='slot' and not any(pcs[w] in (2,3) for w in range(N)): add('new slot',phase='covered',poison=False,dl=len(wal),ent=None,pend=frozenset(),fill=None)
        elif phase=='restarted': add(f'holders of locks on R: {show(holders())}',hold=holders(),phase='rewait')
        elif phase=='rewait':
            if not hold&holders(): add('the second wait is over',phase='covered')
        # fills, one after the other; no prober: PENDING is cleared by nothing here, S0 proves
        if fill is None:
            if ent is None and left: add(f'MISS, fill registered; R covered: {phase=="covered"}',left=left-1,fill=('reg',phase=='covered',pend,frozenset(),None))
        elif fill[0]=='reg': add(f'S0={show(vis)}',fill=('exec',*fill[1:4],vis))
        elif fill[0]=='exec': add(f'query: result={show(vis)}',fill=('done',*fill[1:4],(fill[4],vis)))
        else:
            s0,res=fill[4]; cand=(fill[2]|pend|fill[3])-s0
            covered=fill[1] if p.s0=='covered' else phase=='covered'
            ok=covered and not cand
            add(f'result {show(res)} arrives; '+('INSTALL' if ok else 'not cached'),fill=None,ent=res if ok else ent)
        return out
    return explore(init,check,steps)

V=[
 P('H1 covered as soon as ALTER PUBLICATION committed','VIOLATION',barrier=False),
 P('H2 covered once every holder of a lock on R at that moment has ended','HOLDS'),
 P('H3 H2 with the lock holders read before the ALTER committed','VIOLATION',read='before'),
 P('H4 H2 where a writer counts as ended once its commit is in the WAL','VIOLATION',holder='wal'),
 P('H5 H2 that overlooks prepared transactions','VIOLATION',prepared=False),
 P('H6 H2 where a fill whose S0 is older than the end of the wait installs','VIOLATION',s0='arrive'),
 P('H7 H2 on a server without the 2025 fix','VIOLATION',fixed=False),
 P('H8 H7, walsender started again right after the wait, same slot','VIOLATION',fixed=False,restart='wait'),
 P('H9 H7, walsender started again once the stream passed the end() read after the wait','VIOLATION',fixed=False,restart='passed'),
 P('H10 H9, then the holders of locks on R are waited for again','HOLDS',fixed=False,restart='rewait'),
 P('H11 H7, new slot made after the wait','HOLDS',fixed=False,restart='slot'),
]
if __name__=='__main__': main(V,run)
