#!/usr/bin/env python3
"""DDL that the stream does not carry (no event triggers, or roles): its acknowledgement, and what sessions see around it.

A session sends D. It becomes visible, and is answered; the catalogue is looked at now and then, and a look that was taken after D was
visible finds it: then entries of the old definition go, and flights fail. D is counted as under way from before it is sent until it is
acknowledged. A second session passes (its query runs, later its answer arrives) or hits one of two keys; a third fills them.

A look has a number. "Asked after x" is told by the number of looks that had been asked for at x.

Checked: RYW (a hit shows D once D is acknowledged), MONO (the second session never goes back from the new definition to the old one).
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    hold='asked'       # the acknowledgement waits for a look that was 'asked' for | 'answered' after D's own answer | None
    fence=None         # a time-out sets a fence ('before' | 'after' the acknowledgement), and hits wait for such a look instead
    count='sent'       # D counts as under way from before it is 'sent' | from when it is 'answered' | None: never
    until='ack'        # until its 'ack'nowledgement | its 'answer'
    watermark=True         # who is answered while D is under way hits only behind a look that was asked for afterwards
    stamp=True         # so is a result that is installed meanwhile
    looks=3
    fills=1
    passes=2

# d: 0 not sent, 1 sent, 2 visible, 3 answered, 4 acknowledged    at: looks asked for at its answer    asked: looks asked for
# look: None | (number, shows D)    done: number of the last look that was taken in    fence, watermark, ent[k][1]: hits need a later one
St=namedtuple('St','d at asked look done fence late ents fill left rd seen watermark passes bad')

def run(p):
    init=St(0,0,0,None,0,-1,False,((0,-1),None),None,p.fills,None,0,-1,p.passes,'')
    def under_way(s):
        if p.count is None: return False
        return {'sent':1,'answered':3}[p.count]<=s.d<{'ack':4,'answer':3}[p.until]
    put=lambda t,i,v:t[:i]+(v,)+t[i+1:]
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        vis=int(s.d>=2)
        if s.d==0: add('D is sent',d=1)
        elif s.d==1: add('D is visible',d=2)
        elif s.d==2: add('D is answered',d=3,at=s.asked)
        elif s.d==3:
            passed={'asked':s.done>s.at,'answered':s.late,None:True}[p.hold]
            if passed: add('D is acknowledged',d=4)
            elif p.fence=='before': add('time-out: fence, D is acknowledged',d=4,fence=s.asked)
            elif p.fence=='after': add('time-out: D is acknowledged',d=4)
        elif p.fence=='after' and s.fence<0: add('fence',fence=s.asked)
        if s.look is None:
            if s.asked<p.looks: add(f'look {s.asked+1} is taken, '+('shows D' if vis else 'without D'),asked=s.asked+1,look=(s.asked+1,vis))
        else:
            n,shows=s.look
            old=shows and any(e and not e[0] for e in s.ents) or (shows and s.fill)
            add(f'look {n} is taken in'+(', flush' if old else ''),look=None,done=n,late=s.late or s.d==3,
                ents=(None,None) if old else s.ents,fill=None if old else s.fill)
        # fills
        if s.fill is None:
            for k in (0,1):
                if s.ents[k] is None and s.left: add(f'fill of {k} begins',fill=(k,None),left=s.left-1)
        elif s.fill[1] is None: add(f'fill: result {"new" if vis else "old"}',fill=(s.fill[0],vis))
        else: add('fill: installed',fill=None,ents=put(s.ents,s.fill[0],(s.fill[1],s.asked if p.stamp and under_way(s) else -1)))
        # the second session
        if s.rd is None:
            if s.passes: add('passes: its query runs',rd=vis,passes=s.passes-1)
            for k in (0,1):
                e=s.ents[k]
                if e is None or s.done<=max(s.fence,s.watermark,e[1]): continue
                bad=('RYW','hit old, D is acknowledged') if s.d==4 and not e[0] else ('MONO','hit old, the new was seen') if s.seen>e[0] else ''
                add(f'HIT {k} {"new" if e[0] else "old"}',seen=max(s.seen,e[0]),bad=bad)
        else: add(f'passes: answered {"new" if s.rd else "old"}',rd=None,seen=max(s.seen,s.rd),watermark=s.asked if p.watermark and under_way(s) else s.watermark)
        return out
    return explore(init,lambda s:s.bad or None,steps)

V=[
 P('V1 commit wait until a look asked for after the answer; watermark and stamp while under way','HOLDS'),
 P('V2 no commit wait','VIOLATION',hold=None),
 P('V3 commit wait until a look is taken in after the answer','VIOLATION',hold='answered'),
 P('V4 time-out: fence until such a look, then acknowledgement','HOLDS',fence='before'),
 P('V5 time-out: acknowledgement, then fence','VIOLATION',fence='after'),
 P('V6 no watermark for who passes while D is under way','VIOLATION',watermark=False),
 P('V7 no stamp for what is installed while D is under way','VIOLATION',stamp=False),
 P('V8 D counts from its answer','VIOLATION',count='answered'),
 P('V9 D counts until its answer','VIOLATION',until='answer'),
]
if __name__=='__main__': main(V,run)
